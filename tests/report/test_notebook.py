"""What a notebook shows."""

import polars as pl
import pytest

import nsysflow
from nsysflow import Options, StepPart
from nsysflow.analysis.declared.tables import TABLES
from nsysflow.report.notebook import (
    CELLS,
    LABEL,
    LEVELS,
    MOST_GPUS,
    STEPS,
    WIDTH,
    Run,
    bars,
    html_of,
    runs,
    timeline,
    windows_of,
)
from nsysflow.report.pictures import ALL
from nsysflow.report.results import Results
from tests.analyses import analysed, few_reports, loaded, run_of
from tests.report.handmade import MS, device, results
from tests.report.notebook_html import boxes, title_of, tree, words


@few_reports
def test_bars_are_as_wide_as_the_parts_of_the_accounting(name: str) -> None:
    judged = run_of(name).judged
    rows = judged.accounting.rows(named=True)
    steps = [judged.steps_on(row["report"], row["device"]) for row in rows]
    longest_ns = max(row["window_ns"] / count for row, count in zip(rows, steps, strict=True))
    wanted = [
        row[part.column] / count / longest_ns * (WIDTH - LABEL)
        for row, count in zip(rows, steps, strict=True)
        for part in ALL
        if row[part.column]
    ]
    found = [float(each.attrib["width"]) for each in boxes(bars(run_of(name)))]
    assert found == pytest.approx(wanted, abs=0.01)


def test_a_bar_says_what_it_is() -> None:
    titles = [title_of(each) for each in boxes(bars(run_of("nan_check-sync")))]
    assert titles[0] == "compute 3.24 ms, 84 %"
    assert titles[2] == "idle: waiting in a sync 520 us, 14 %"


def test_the_legend_of_several_gpus_has_no_figures() -> None:
    run = Results([analysed("ddp-bucketed-rank0"), analysed("ddp-bucketed-rank1")])
    assert "compute</span>" in bars(run)


def test_without_gpu_work_there_is_no_bar() -> None:
    assert bars(results()) == ""


Row = tuple[int, int, str]


def lane(*rows: Row) -> pl.DataFrame:
    return pl.DataFrame(rows, ["start_ns", "end_ns", "kind"], orient="row")


def shown(*rows: Row, start_ns: int = 0, end_ns: int = 10 * CELLS) -> list[Run]:
    """Of a picture whose places are 10 ns wide."""
    return runs(lane(*rows), start_ns, end_ns)


def full(first: int, count: int, kind: str) -> Run:
    return Run(first=first, count=count, kind=kind, level=LEVELS)


def test_what_fills_places_is_drawn_there_and_nowhere_else() -> None:
    assert shown((20, 50, "a")) == [full(2, 3, "a")]


def test_neighbours_of_one_kind_are_one_run_and_others_are_not() -> None:
    rows = [(0, 10, "a"), (10, 30, "a"), (30, 40, "b"), (50, 60, "b")]
    assert shown(*rows) == [full(0, 3, "a"), full(3, 1, "b"), full(5, 1, "b")]


def test_a_place_shows_what_takes_most_of_it() -> None:
    assert shown((0, 4, "a"), (4, 10, "b")) == [full(0, 1, "b")]


def test_a_place_is_as_high_as_it_is_full() -> None:
    assert [each.level for each in shown((0, 1, "a"), (10, 15, "a"), (20, 30, "a"))] == [1, 2, 4]


def test_what_overlaps_fills_no_place_twice() -> None:
    assert shown((0, 10, "a"), (0, 10, "a")) == [full(0, 1, "a")]


def test_nothing_is_too_short_to_be_drawn() -> None:
    assert shown((7, 7, "a")) == [Run(first=0, count=1, kind="a", level=1)]


def test_what_lies_outside_is_left_out_and_what_reaches_in_is_cut() -> None:
    rows = [(0, 100, "before"), (90, 120, "a"), (3_000, 9_999, "b"), (9_999, 10_000, "after")]
    found = shown(*rows, start_ns=100, end_ns=100 + 10 * CELLS)
    assert found == [full(0, 2, "a"), full(290, CELLS - 290, "b")]


def test_an_empty_lane_shows_nothing() -> None:
    assert shown() == []


UNTRUSTED = '<script>alert("x")</script> & \N{HEBREW LETTER ALEF} ' + "x" * 5000


def test_a_notebook_shows_verdict_findings_accounting_and_timeline() -> None:
    read = words(analysed("nan_check-sync")._repr_html_())
    assert "compute-bound (84 %, mostly matmul); largest loss: waiting in a sync, 14 %" in read
    assert "save 520 us (14 %) sync in the loop: cudaStreamSynchronize in step/metrics" in read
    assert "compute 3.24 ms, 84 %" in read
    assert "Timeline GPU 0 step 1 step 2 idle" in read


@few_reports
def test_every_report_is_shown_in_well_formed_html_without_scripts(name: str) -> None:
    root = tree(analysed(name)._repr_html_())
    assert root.get("class") == "nsysflow"
    assert not [*root.iter("script")]
    assert len([*root.iter("rect")]) < 1000


def test_ranks_are_shown_together() -> None:
    run = Results([analysed("ddp-bucketed-rank0"), analysed("ddp-bucketed-rank1")])
    read = words(run._repr_html_())
    assert read.count("stream 17") == 2
    assert "arrivals : per collective" in read


def test_an_analysis_lists_its_tables_and_not_those_of_runs() -> None:
    listed = [each.text for each in tree(analysed("nan_check-sync")._repr_html_()).iter("code")]
    names = [name for name, each in TABLES.items() if each.of == "report" or name == "findings"]
    assert listed == names


def test_names_from_the_program_are_text() -> None:
    run = results(accounting=[device(9 * MS, name=UNTRUSTED, host_ns=MS)])
    html = html_of(run)
    assert "<script" not in html
    assert '<script>alert("x")</script> &' in words(html)


def test_without_gpu_work_there_are_no_pictures() -> None:
    html = html_of(results())
    assert "no GPU work" in words(html)
    assert not [*tree(html).iter("svg")]


def test_an_analysis_that_cannot_be_made_says_why() -> None:
    analysis = nsysflow.analyze(loaded("nan_check-sync"), nsysflow.Options(range="nope"))
    assert analysis._repr_html_().startswith(
        "<b>Analysis of nan_check-sync</b><br>no range &#x27;nope&#x27;"
    )


@pytest.mark.parametrize("name", ["nan_check-sync", "h200-train"])
def test_it_is_the_same_each_time(name: str) -> None:
    assert analysed(name)._repr_html_() == analysed(name)._repr_html_()


def test_the_first_judged_steps_are_shown() -> None:
    (window,) = windows_of(run_of("nan_check-sync"))
    steps = run_of("nan_check-sync").steps.filter(run_of("nan_check-sync").steps["step"] > 0)
    first, second = steps.select("step", "start_ns", "end_ns").rows()[:STEPS]
    assert window.steps == [(first[0], first[1]), (second[0], second[1])]
    assert (window.start_ns, window.end_ns) == (first[1], second[2])


def test_steps_that_do_not_follow_each_other_are_not_shown_together() -> None:
    options = Options(steps=(StepPart(1, 2), StepPart(3, 4)))
    run = Results([nsysflow.analyze(loaded("nan_check-sync"), options)])
    (window,) = windows_of(run)
    assert [number for number, _ in window.steps] == [1]


def test_without_judged_steps_the_window_is_shown() -> None:
    run = results(accounting=[device(9 * MS, start_ns=2 * MS, end_ns=11 * MS)])
    (window,) = windows_of(run)
    assert (window.start_ns, window.end_ns) == (2 * MS, 11 * MS)
    assert [*window.steps] == []


def test_boxes_say_what_they_show() -> None:
    titles = {title_of(each) for each in boxes(timeline(run_of("nan_check-sync")))}
    assert titles == {
        "compute",
        "copy",
        "idle: host code",
        "idle: queue delay",
        "idle: waiting in a sync",
    }


@few_reports
def test_there_are_few_boxes_and_all_lie_in_the_picture(name: str) -> None:
    found = boxes(timeline(run_of(name)))
    assert len(found) < 1000
    for each in found:
        assert float(each.attrib["x"]) + float(each.attrib["width"]) <= 760.01


def test_of_many_gpus_the_first_are_shown() -> None:
    name = "ddp-bucketed-rank0"
    run = Results([analysed(name)] * (MOST_GPUS + 2))
    assert words(f"<div>{timeline(run)}</div>").count("stream 17") == MOST_GPUS


def test_without_gpu_work_there_is_no_timeline() -> None:
    assert timeline(results()) == ""
