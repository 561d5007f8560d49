import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from nsysflow.catalog.catalog import find, workloads
from nsysflow.cli.main import main
from nsysflow.runs.manifest import write_manifest
from nsysflow.runs.ranges import range_names
from tests.cli.running import run
from tests.exports import write_export
from tests.reports import sqlite_report
from tests.runs.runs import RUN


@pytest.fixture(autouse=True)
def here(here: Path) -> Path:
    """The working folder, with one report."""
    sqlite_report(here, "nan_check-sync").rename("run.sqlite")
    return here


def completed(typed: str) -> list[str]:
    """What the last word may become."""
    *words, last = typed.split(" ")
    shell = ShellComplete(main, {}, "nsysflow", "_NSYSFLOW_COMPLETE")
    return [item.value for item in shell.get_completions(words, last)]


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("profile ", [each.name for each in workloads()]),
        ("profile nan_", ["nan_check"]),
        ("profile nan_check --variant ", [each.name for each in find("nan_check").variants]),
        ("profile --variant ", []),
        ("analyze run.sqlite --table gap_", ["gap_summary", "gap_histogram"]),
        ("analyze run.sqlite --range f", ["forward"]),
        ("analyze run.sqlite --steps 2: --step st", ["step"]),
        ("analyze big.sqlite.xz --range ", ["fwd", "step", "step/fwd"]),  # analysed before
        ("analyze no.sqlite --range ", []),
        ("analyze broken.sqlite --range ", []),
        ("analyze  --range ", []),
    ],
)
def test_a_word_becomes_what_there_is(here: Path, typed: str, found: list[str]) -> None:
    (here / "broken.sqlite").write_bytes(b"not a database")
    (here / "big.sqlite.xz").write_bytes(b"not read again")
    (here / "big.sqlite.xz.nsysflow").mkdir()
    (here / "big.sqlite.xz.nsysflow" / "phases.csv").write_text("path,depth\nstep/fwd,2\nstep,1\n")
    assert completed(typed) == found


def test_completing_a_range_imports_no_polars() -> None:
    code = (
        "import sys; from nsysflow.cli.main import main\n"
        "from click.shell_completion import ShellComplete\n"
        "shell = ShellComplete(main, {}, 'nsysflow', '_')\n"
        "found = shell.get_completions(['analyze', 'run.sqlite', '--range'], 'f')\n"
        "print([item.value for item in found], 'polars' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['forward'] False"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_asks_this_program(shell: str) -> None:
    assert "_NSYSFLOW_COMPLETE" in run("completion", shell).stdout


def test_a_run_has_the_names_of_its_report_or_analysis(tmp_path: Path) -> None:
    write_manifest(tmp_path, RUN)
    nvtx = [{"text": "train"}, {"text": "train"}, {"text": "iteration 3"}, {"text": "eval"}]
    write_export(tmp_path / "report.sqlite", nvtx=nvtx)
    assert range_names(tmp_path) == range_names(tmp_path / "report.sqlite") == ["eval", "train"]
    (tmp_path / "phases.csv").write_text("report,path\nr,step/fwd\n")
    assert range_names(tmp_path) == ["fwd", "step/fwd"]
