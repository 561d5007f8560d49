"""`nsysflow bench`: options, exit code and files."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from nsysflow.cli.bench import bench, words_of
from nsysflow.cli.main import main
from nsysflow.kernels.bench import __main__ as process
from nsysflow.kernels.bench import session
from nsysflow.kernels.bench.session import Bench, Case, blank_row

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU it times, for long")

ROOT = Path(__file__).parents[3]
PROGRAM = "from nsysflow.cli.main import main; main(prog_name='nsysflow')"


def run_here(*words: str) -> Result:
    """Run the process of the benchmark in this one: another would take 2.5 s to import torch."""
    return CliRunner().invoke(process.main, words, prog_name="nsysflow bench")


@pytest.mark.long
def test_the_exit_code_and_the_output_are_those_of_the_process(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, "bench", "copy", "--inject-error"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "copy triton fwd float KiB=3: wrong: output 0 is off by" in done.stderr
    assert "1 of 2 results are correct" in done.stdout


def test_correct_results_end_with_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = ("--csv", "rows.csv", "--json", "rows.json")
    done = run_here("copy", "prio", "--dtype", "float", *files)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "4 of 4 results are correct\nNothing was timed" in done.stdout
    assert len(Path("rows.csv").read_text().splitlines()) == 5
    assert len(Path("rows.json").read_text().splitlines()) == 4
    assert str(tmp_path) not in Path("rows.json").read_text()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("copy --inject-error --csv rows", 2, "cannot be combined with --csv or --json"),
        ("copy --inject-error --json rows", 2, "cannot be combined with --csv or --json"),
        ("nope", 2, "no kernel is called 'nope'"),
        ("muon --variant cuda", 1, "there is nothing to run: muon without a GPU has no"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_and_nothing_is_kept(
    words: str, code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_here(*words.split())
    assert done.exit_code == code
    assert said in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_process_gets_the_options_of_the_command() -> None:
    words = ["prio", "muon", "--variant", "ref", "--variant", "triton", "--sweep", "--csv", "a b"]
    group = main.make_context("nsysflow", ["bench"])
    context = bench.make_context("bench", list(words), parent=group)
    assert words_of(bench, context.params) == words


def test_ctrl_c_is_left_to_the_process_that_bench_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_argv: object, check: bool) -> subprocess.CompletedProcess[bytes]:
        signal.raise_signal(signal.SIGINT)
        return subprocess.CompletedProcess([], returncode=130)

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(subprocess, "run", interrupted)
    done = CliRunner().invoke(main, ["bench", "copy"])
    assert (done.exit_code, done.output) == (130, "")
    assert signal.getsignal(signal.SIGINT) == before


def test_ctrl_c_keeps_the_rows_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(3))

    def row_of(bench: Bench, case: Case, *, corrupt: bool) -> object:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return blank_row(bench, case)

    monkeypatch.setattr(session, "row_of", row_of)
    rows = tmp_path / "rows.csv"
    done = run_here("prio", "--csv", str(rows))
    assert (done.exit_code, done.stderr) == (130, "nsysflow: interrupted\n")
    assert len(rows.read_text().splitlines()) == 1 + 3
