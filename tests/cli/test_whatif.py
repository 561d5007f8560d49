"""`nsysflow whatif`: what it takes, prints and refuses."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nsysflow.cli.main import main
from tests.analyses import analysed
from tests.exports import write_export
from tests.reports import SAMPLES
from tests.sharing import shared_analyses

REPORT = str(SAMPLES / "nan_check-sync.sqlite.xz")


@pytest.fixture(scope="module", autouse=True)
def shared() -> Iterator[None]:
    """Commands on a sample share its analysis."""
    with shared_analyses():
        yield


def whatif(*arguments: str, report: str = REPORT) -> Result:
    return CliRunner().invoke(main, ["whatif", report, *arguments])


def windows(*arguments: str) -> tuple[int, int]:
    """The window before and after."""
    result = whatif("--json", *arguments)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    return document["window_before_ns"], document["window_after_ns"]


def test_the_page_says_step_window_and_idle_time() -> None:
    result = whatif("--remove", "sync@nan_check.py:125")
    assert result.exit_code == 0
    assert "saves 520 us (14 %), the mean of 4 steady steps" in result.stdout
    assert "waiting in a sync        2.71 ms         0" in result.stdout


def test_without_changes_the_window_is_the_recorded_one() -> None:
    before, after = windows()
    assert before == after


@pytest.mark.parametrize(
    "change",
    [
        ("--remove", "all"),
        ("--graph", "step"),
        ("--scale", "reduce_kernel=0.5"),
        ("--faster-host", "step=0.5"),
        ("--async-copies", "--remove", "sync"),
        ("--no-profiler",),
    ],
    ids=lambda change: " ".join(change),
)
def test_each_change_saves_time(change: tuple[str, ...]) -> None:
    before, after = windows(*change)
    assert after < before


def test_the_next_finding_may_be_one_of_small_grids() -> None:
    report = str(SAMPLES / "trainstep-graph.sqlite.xz")
    shown = json.loads(whatif("--remove", "all", "--json", report=report).stdout)
    assert shown["then"]["rule"] == "small-grid"


def test_changes_are_combined() -> None:
    _, both = windows("--remove", "sync", "--faster-host", "step=0.5")
    assert both < min(windows("--remove", "sync")[1], windows("--faster-host", "step=0.5")[1])


def test_rows_of_syncs_csv_name_calls(tmp_path: Path) -> None:
    file = tmp_path / "syncs.csv"
    analysed("nan_check-sync").syncs.filter(kind="sync").drop("copy_label").write_csv(file)
    assert windows("--remove-calls", str(file)) == windows("--remove", "sync")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("--remove", "syncs"), "Did you mean sync?"),
        (("--remove", "sync@"), "names no place"),
        (("--remove", "sync@nan_chek.py:125"), "Did you mean nan_check.py:125"),
        (("--graph", "step/metric"), "Did you mean step/metrics"),
        (("--scale", "reduce_kernel=half"), "is not NAME=FACTOR"),
        (("--scale", "reduce_kernel=-1"), "is not NAME=FACTOR"),
        (("--scale", "reduce_kernel=nan"), "is not NAME=FACTOR"),
        (("--faster-host", "=0.5"), "is not NAME=FACTOR"),
        (("--scale", "reduce_kernels=0.5"), "Did you mean reduce_kernel"),
    ],
)
def test_a_bad_argument_is_refused_with_the_nearest_name(
    change: tuple[str, ...], said: str
) -> None:
    result = whatif(*change)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not result.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("process,thread\n1,2\n", "has no column start_ns"),
        ("process,thread,start_ns\n1,2,soon\n", "line 2 of"),
        ("process,thread,start_ns\n1,2,3\n", "1 of 1 calls are not in"),
        ("process,thread,start_ns\n1,2\n", "line 2 of"),
        (f"process,thread,start_ns\n1,2,{1 << 63}\n", "line 2 of"),
        ("", "has no column process"),
        ("\xff", "is not a CSV file"),
    ],
)
def test_a_file_of_calls_that_cannot_be_meant_is_refused(
    text: str, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "calls.csv"
    file.write_text(text, encoding="latin-1")
    result = whatif("--remove-calls", str(file))
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_report_without_gpu_work_takes_no_time(tmp_path: Path) -> None:
    report = str(write_export(tmp_path / "empty.sqlite"))
    result = whatif("--remove", "sync", report=report)
    assert result.exit_code == 0
    assert "no GPU is idle" in result.stdout


def test_a_report_that_is_not_there_is_an_error_of_the_report(tmp_path: Path) -> None:
    result = whatif("--remove", "sync", report=str(tmp_path / "gone.sqlite"))
    assert result.exit_code == 1
    assert "does not exist" in result.stderr


def test_the_step_is_the_mean_of_those_that_are_selected() -> None:
    result = whatif("--remove", "sync", "--steps", "1:4", "--steps", "!2")
    assert "the mean of 2 selected steps" in result.stdout


def test_steps_that_are_not_there_are_refused() -> None:
    result = whatif("--remove", "sync", "--steps", "9")
    assert result.exit_code == 1
    assert "5 steps, 0 to 4: none of them is in --steps 9" in result.output
