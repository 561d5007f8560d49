"""What a page concludes, or why it does not."""

from dataclasses import replace
from pathlib import Path

import pytest

from nsysflow.analysis.options import Options
from nsysflow.analysis.tables.validity import Check, FailedCheck
from nsysflow.report.markdown import summary
from nsysflow.report.results import Results as RealResults
from nsysflow.report.terminal import page
from nsysflow.report.verdict import judge
from nsysflow.runs.analyze import analyze_reports
from tests.analyses import analysed, every_report
from tests.breaking import (
    EVERY_TENTH_UNSTAMPED,
    MIDDLE_THIRD_GONE,
    NO_OPERATIONS,
    ONE_GRAPH_KERNEL_STRETCHED,
    broken,
)
from tests.report.handmade import (
    MS,
    Handmade,
    Results,
    captured,
    device,
    handmade,
    results,
    training,
)
from tests.reports import DATA, parquetdir_report

ZEROS = FailedCheck(check=Check.UNSTAMPED, count=688, of=6892)


def lines(of: RealResults) -> list[str]:
    return [str(line) for line in page(of, width=200, top=None)]


@every_report
def test_a_report_that_nobody_broke_is_valid(name: str) -> None:
    found = judge(Results([analysed(name)]))
    assert found.valid
    assert found.bound is not None
    assert not any("wrong time" in each for each in found.remarks)


def test_reports_of_other_formats_are_valid(tmp_path: Path) -> None:
    for path in (DATA / "h200-kineto.pt.trace.json.gz", parquetdir_report(tmp_path)):
        assert judge(analyze_reports([path], Options())).valid


def test_a_failed_check_stands_in_place_of_the_bound() -> None:
    run = Results([replace(training(), failed_checks=(ZEROS,))])
    found = judge(run)
    assert (found.valid, found.why, found.bound) == (False, "unstamped-operations", None)
    assert found.text == (
        "Incomplete capture: 688 of 6,892 operations are stamped 0. Record again with a newer nsys"
    )
    assert lines(run)[2] == "Incomplete capture: 688 of 6,892 operations are stamped 0"
    assert "**Incomplete capture: 688 of 6,892 operations are stamped 0**" in summary(run)
    assert "host-bound" not in summary(run)


@pytest.mark.parametrize(
    ("done", "says"),
    [
        (MIDDLE_THIRD_GONE, "Incomplete capture: 3,"),
        (EVERY_TENTH_UNSTAMPED, "Incomplete capture: 688 of 6,892 operations are stamped 0"),
        (NO_OPERATIONS, "No kernel in this report: nsys 2025.3.2.0 is probably older than"),
    ],
)
def test_the_page_of_a_broken_report_begins_with_what_is_wrong(
    tmp_path: Path, done: str, says: str
) -> None:
    run = analyze_reports([broken(tmp_path, "h200-train", done)], Options())
    assert lines(run)[2].startswith(says)


def test_one_stretched_kernel_of_a_graph_is_said_below_the_headline(tmp_path: Path) -> None:
    path = broken(tmp_path, "h200-train", ONE_GRAPH_KERNEL_STRETCHED)
    run = analyze_reports([path], Options())
    assert judge(run).valid
    headline, remark = lines(run)[2:4]
    assert headline.startswith("host-bound")
    assert remark.startswith("1 operation of a CUDA graph has a wrong time")


def slowed(recorded_ms: float, process: int = 7) -> Handmade:
    """Steps of 10 ms that take longer under the profiler."""
    rows = [{"process": process, "duration_ns": int(recorded_ms * MS), "steady": True}]
    run = handmade(accounting=[device(9 * MS)], step_name="step", steps=rows)
    return captured(run, (process, 10 * MS))


def test_a_profiler_that_slows_the_steps_is_said_below_the_headline() -> None:
    run = Results([slowed(15.9)])
    remark = (
        "Recorded steps are 59 % slower than unprofiled ones: host and launch shares are inflated"
    )
    assert judge(run).remarks == (remark,)
    assert judge(run).valid
    assert judge(run).text.endswith(f". {remark}")
    assert lines(run)[3] == remark
    assert f"\n{remark}.\n" in summary(run)


@pytest.mark.parametrize(("recorded_ms", "said"), [(11.4, 0), (11.5, 1), (9.0, 0)])
def test_from_15_percent_on_the_profiler_matters(recorded_ms: float, said: int) -> None:
    assert len(judge(Results([slowed(recorded_ms)])).remarks) == said


def test_the_kind_of_steps_that_is_slowed_most_counts() -> None:
    most = replace(slowed(20, process=8), step_name="serve")
    (remark,) = judge(Results([slowed(12), most])).remarks
    assert remark.startswith("Recorded steps are 100 % slower")


def test_without_gpu_work_nothing_is_bound() -> None:
    found = judge(results())
    assert found.valid
    assert found.bound is None


def test_without_a_known_step_it_is_said_how_to_name_one() -> None:
    (remark,) = judge(results(accounting=[device(9 * MS)])).remarks
    assert remark.startswith("No step is known, so the whole window is judged: ")
    assert "--step NAME" in remark
    assert judge(Results([training()])).remarks == ()
