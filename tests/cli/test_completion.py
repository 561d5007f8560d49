"""What a shell completes; it must be quick and never print an error."""

import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from nsysflow.catalog.catalog import find, workloads
from nsysflow.cli.main import main
from nsysflow.runs.manifest import write_manifest
from nsysflow.runs.ranges import range_names
from tests.exports import write_export
from tests.reports import SAMPLES
from tests.runs.runs import RUN


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with one report."""
    monkeypatch.chdir(tmp_path)
    packed = (SAMPLES / "nan_check-sync.sqlite.xz").read_bytes()
    (tmp_path / "run.sqlite").write_bytes(lzma.decompress(packed))
    return tmp_path


def completed(*words: str) -> list[str]:
    """What the last word may become."""
    *typed, last = words
    shell = ShellComplete(main, {}, "nsysflow", "_NSYSFLOW_COMPLETE")
    return [item.value for item in shell.get_completions(typed, last)]


def test_workloads_and_their_variants() -> None:
    assert completed("profile", "") == [each.name for each in workloads()]
    assert completed("profile", "nan_") == ["nan_check"]
    variants = [each.name for each in find("nan_check").variants]
    assert completed("profile", "nan_check", "--variant", "") == variants
    assert completed("profile", "--variant", "") == []


def test_tables() -> None:
    assert completed("analyze", "run.sqlite", "--table", "gap_") == ["gap_summary", "gap_histogram"]


def test_ranges_of_the_report_that_was_typed() -> None:
    assert completed("analyze", "run.sqlite", "--range", "f") == ["forward"]
    assert completed("analyze", "run.sqlite", "--steps", "2:", "--step", "st") == ["step"]


def test_ranges_of_a_report_that_was_analysed_are_also_paths(here: Path) -> None:
    (here / "big.sqlite.xz").write_bytes(b"not read again")
    (here / "big.sqlite.xz.nsysflow").mkdir()
    (here / "big.sqlite.xz.nsysflow" / "phases.csv").write_text("path,depth\nstep/fwd,2\nstep,1\n")
    assert completed("analyze", "big.sqlite.xz", "--range", "") == ["fwd", "step", "step/fwd"]


@pytest.mark.parametrize("report", ["no.sqlite", "broken.sqlite", ""])
def test_where_nothing_can_be_read_nothing_is_completed(report: str, here: Path) -> None:
    (here / "broken.sqlite").write_bytes(b"not a database")
    assert completed("analyze", report, "--range", "") == []


def test_a_broken_settings_file_is_no_matter_of_completion(here: Path) -> None:
    (here / "nsysflow.toml").write_text("oops = [")
    assert completed("profile", "nan_") == ["nan_check"]


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
    script = CliRunner().invoke(main, ["completion", shell]).stdout
    assert "_NSYSFLOW_COMPLETE" in script


def test_the_variable_of_the_script_is_the_one_that_is_asked_for() -> None:
    asked = {"_NSYSFLOW_COMPLETE": "bash_complete", "COMP_WORDS": "nsysflow dem", "COMP_CWORD": "1"}
    argv = [sys.executable, "-m", "nsysflow"]
    done = subprocess.run(
        argv, env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert done.stdout == "plain,demo\n"


NVTX = [{"text": "train"}, {"text": "train"}, {"text": "iteration 3"}, {"text": "eval"}]


def test_the_names_of_an_export_are_those_without_numbers(tmp_path: Path) -> None:
    report = write_export(tmp_path / "r.sqlite", nvtx=NVTX)
    assert range_names(report) == ["eval", "train"]


def test_a_run_has_the_names_of_its_report(tmp_path: Path) -> None:
    write_manifest(tmp_path, RUN)
    write_export(tmp_path / "report.sqlite", nvtx=NVTX)
    assert range_names(tmp_path) == ["eval", "train"]


def test_the_phases_of_an_earlier_analysis_win(tmp_path: Path) -> None:
    write_manifest(tmp_path, RUN)
    write_export(tmp_path / "report.sqlite", nvtx=NVTX)
    (tmp_path / "phases.csv").write_text("report,path\nr,step/fwd\n")
    assert range_names(tmp_path) == ["fwd", "step/fwd"]


def test_a_report_that_is_no_database_has_no_names_to_complete(tmp_path: Path) -> None:
    (tmp_path / "r.sqlite").write_bytes(b"x" * 5000)
    assert range_names(tmp_path / "r.sqlite") == []
    assert range_names(tmp_path / "none.sqlite") == []
