"""`nsysflow bench`, as typed: another process, its exit code, its files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nsysflow.bench_options import words_of
from nsysflow.cli import main
from nsysflow.cli_bench import bench

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU it times, for long")

ROOT = Path(__file__).parents[3]
PROGRAM = "from nsysflow.cli import main; main(prog_name='nsysflow')"


def typed(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """What `nsysflow bench WORDS` does, in a folder."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    environment.pop("TRITON_INTERPRET", None)
    return subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, "bench", *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_right_results_end_with_0_and_say_that_nothing_was_timed(tmp_path: Path) -> None:
    files = ("--csv", "rows.csv", "--json", "rows.json")
    done = typed("copy", "prio", "--dtype", "float", *files, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "4 of 4 results are right\nNothing was timed" in done.stdout
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 5
    assert len((tmp_path / "rows.json").read_text().splitlines()) == 4
    assert str(tmp_path) not in (tmp_path / "rows.json").read_text()


@pytest.mark.slow
def test_an_injected_error_ends_with_3(tmp_path: Path) -> None:
    done = typed("copy", "--inject-error", cwd=tmp_path)
    assert done.returncode == 3
    assert "copy triton fwd float KiB=3: wrong: output 0 is off by" in done.stderr
    assert "1 of 2 results are right" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nope"], 2, "'nope' is not one of"),
        (["copy", "--inject-error", "--csv", "rows.csv"], 2, "--inject-error"),
        (["muon", "--variant", "cuda"], 1, "muon without a GPU has nothing of cuda"),
    ],
)
def test_what_cannot_be_run_is_refused(
    words: list[str], code: int, said: str, tmp_path: Path
) -> None:
    done = typed(*words, cwd=tmp_path)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_child_is_typed_what_the_command_was() -> None:
    words = ["prio", "muon", "--variant", "ref", "--variant", "triton", "--sweep", "--csv", "a b"]
    group = main.make_context("nsysflow", ["bench"])
    context = bench.make_context("bench", list(words), parent=group)
    assert words_of(bench, context.params) == words
