"""What the page's timeline holds is the picture, row by row; where a finding leads to."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.analyze import Analysis
from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.options import Options
from nsysflow.analysis.tracks.rows import group_of
from nsysflow.report.html.timeline import places_of
from nsysflow.report.pictures import clocks_of
from tests import tiny
from tests.analyses import KINDS, analysed, loaded, run_of
from tests.analysis.events.test_waits import NCCL
from tests.report.html.made import Page, made, page_of, run_of_these
from tests.tiny import analysis_of, kernel, launch, opened

NAMED = ("operations", "calls", "ranges", "profiler", "host_stacks")
TABLES = (*NAMED, "stack_frames", "steps", "gaps", "counters")
NUMBERS = {"operations": ("call", "phase"), "gaps": ("culprit_call", "culprit_op", "phase")}
"""Columns with the number of a row of another table, or none."""

Drawn = tuple[Page, Analysis]


PAGES = ("h200-ddp-rank0", "h200-gpu-metrics", "h200-graph-level", "h200-hf-trainer",
         "nan_check-sync", "synthetic-1")  # fmt: skip
"""With communication, counters, graphs, samples, lines, and three GPUs: to write a page takes a
second. The pages of the other kinds are long."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(each, marks=() if each in PAGES else pytest.mark.long) for each in KINDS],
)
def drawn(request: pytest.FixtureRequest) -> Drawn:
    """The page of a real report, and the report."""
    return Page(made(request.param).file.read_text("utf-8")), analysed(request.param)


def test_every_slice_is_where_its_frame_has_it_and_has_its_name(drawn: Drawn) -> None:
    page, analysis = drawn
    held, zero = page.reports[0]["tables"], int(page.reports[0]["zero_ns"])
    assert all(held[name]["n"] == getattr(analysis.tracks, name).height for name in TABLES)
    texts = page.texts(page.reports[0]["strings"])
    for table in (*NAMED, "steps"):
        rows = getattr(analysis.tracks, table)
        starts = [zero + start for start in page.column(0, table, "start")]
        assert starts == rows["start_ns"].to_list(), table
        durations = (rows["end_ns"] - rows["start_ns"]).to_list()
        assert page.column(0, table, "duration") == durations, table
        if table in NAMED:
            names = [texts[int(number)] for number in page.column(0, table, "name")]
            assert names == rows["name"].to_list(), table


def test_an_operation_has_its_full_name_and_its_class(drawn: Drawn) -> None:
    page, analysis = drawn
    ops = analysis.tracks.operations
    strings, full = (page.texts(page.reports[0][key]) for key in ("strings", "full_names"))
    numbers = [int(number) for number in page.column(0, "operations", "name")]
    assert [full[number] or strings[number] for number in numbers] == ops["full_name"].to_list()
    classes = [each["name"] for each in page.about["timeline"]["classes"]]
    found = [classes[int(number)] for number in page.column(0, "operations", "class")]
    assert found == ops["class"].to_list()


def test_a_row_number_is_one_more_and_0_for_none(drawn: Drawn) -> None:
    page, analysis = drawn
    for table, columns in NUMBERS.items():
        for column in columns:
            numbers = [int(each) - 1 if each else None for each in page.column(0, table, column)]
            assert numbers == getattr(analysis.tracks, table)[column].to_list(), column


def test_a_gap_is_between_its_operations_and_its_causes_are_its_own(drawn: Drawn) -> None:
    page, analysis = drawn
    gaps = analysis.tracks.gaps
    for side in ("prev_op", "next_op"):
        assert page.column(0, "gaps", side) == gaps[side].to_list()
    names = [each["name"] for each in page.about["timeline"]["causes"]]
    assert names == [*CAUSES]
    causes = [names[int(number)] for number in page.column(0, "gaps", "cause")]
    assert causes == gaps["cause"].to_list()
    counts = [int(count) for count in page.column(0, "gaps", "parts")]
    flat_cause, flat_ns = (page.column(0, "gaps", name) for name in ("part_cause", "part_ns"))
    parts = iter(zip(flat_cause, flat_ns, strict=False))
    for row, cause, count in zip(gaps.iter_rows(named=True), causes, counts, strict=True):
        found = {names[int(number)]: ns for number, ns in (next(parts) for _ in range(count))}
        found[cause] = row["end_ns"] - row["start_ns"] - sum(found.values())
        assert found == {name: row[f"{name}_ns"] for name in names if row[f"{name}_ns"]}


def test_a_lane_is_a_slice_of_the_table_of_its_kind(drawn: Drawn) -> None:
    page, analysis = drawn
    lanes = page.reports[0]["lanes"]
    assert [lane["title"] for lane in lanes] == analysis.tracks.lanes["title"].to_list()
    streams = {number: lane for number, lane in enumerate(lanes) if lane["kind"] == "stream"}
    rows = analysis.tracks.operations["lane"].to_list()
    for number, lane in streams.items():
        assert {*rows[lane["first"] : lane["first"] + lane["count"]]} == {number}
    assert sum(lane["count"] for lane in streams.values()) == len(rows)


def test_ranks_lie_on_the_first_ones_clock(tmp_path: Path) -> None:
    names = ("ddp-bucketed-rank0", "ddp-bucketed-rank1")
    run = run_of_these(*map(analysed, names))
    ahead = run.table("ranks")["clock_ns"].to_list()
    clocks = clocks_of(run, [each.tracks for each in run.analyses])
    shifts = [clock.origin_ns - clock.zero_ns for clock in clocks]
    assert shifts[0] - shifts[1] == ahead[1]
    assert min(clock.origin_ns for clock in clocks) == 0
    page = page_of(run, tmp_path)
    assert [each["clock_known"] for each in page.reports] == [True, True]


def test_a_report_whose_clock_is_unknown_begins_where_the_page_does() -> None:
    run = run_of_these(analysed("h200-nvtx-domain"), analysed("nan_check-sync"))
    clocks = clocks_of(run, [each.tracks for each in run.analyses])
    assert [clock.known for clock in clocks] == [True, False]
    assert [clock.origin_ns for clock in clocks] == [0, 0]


def test_the_selected_part_is_marked_and_the_rest_is_there(tmp_path: Path) -> None:
    whole = analysed("nan_check-sync")
    step = whole.steps.row(1, named=True)
    window = Options(from_ns=step["start_ns"], to_ns=step["end_ns"])
    page = page_of(run_of_these(nsysflow.analyze(loaded("nan_check-sync"), window)), tmp_path)
    zero = int(page.reports[0]["zero_ns"])
    assert page.reports[0]["selection"] == [[step["start_ns"] - zero, step["end_ns"] - zero]]
    assert page.reports[0]["tables"]["steps"]["n"] == whole.steps.height


def test_nothing_is_marked_where_all_of_a_report_is_selected(drawn: Drawn) -> None:
    assert drawn[0].reports[0]["selection"] == []


def test_a_class_counts_as_in_the_accounting() -> None:
    groups = {"compute": "matmul, graph, gemm+comm", "communication": "communication",
              "copy": "copy HtoD, memset"}  # fmt: skip
    for group, names in groups.items():
        assert {group_of(name) for name in names.split(", ")} == {group}


def test_times_before_the_page_was_thought_of_stay_exact(tmp_path: Path) -> None:
    late = 3 * 2**60  # ns since 1970 would be 2**60.6: more than a float holds exactly
    run = analysis_of(launch(late - 1, late + 3, 1), kernel(late + 5, late + 9, 1))
    page = page_of(run_of_these(run), tmp_path)
    assert page.column(0, "operations", "start") == [6]
    assert int(page.reports[0]["zero_ns"]) == late - 1


def test_a_range_without_a_name_says_so(tmp_path: Path) -> None:
    nameless = replace(opened(0, 20, ""), name=None)  # type: ignore[arg-type]
    page = page_of(run_of_these(analysis_of(launch(0, 3, 1), kernel(5, 9, 1), nameless)), tmp_path)
    texts = page.texts(page.reports[0]["strings"])
    assert [texts[int(number)] for number in page.column(0, "ranges", "name")] == ["(nameless)"]


def test_a_page_of_nothing_has_no_lanes(tmp_path: Path) -> None:
    page = page_of(run_of_these(analysis_of()), tmp_path)
    assert page.reports[0]["lanes"] == []
    assert page.about["timeline"]["end_ns"] == 0


SLICES = ("gaps", "operations", "ranges", "steps")


@pytest.mark.parametrize("name", KINDS)
def test_a_finding_leads_to_a_slice_of_its_report_in_a_step_that_counts(name: str) -> None:
    run = run_of(name)
    clocks = clocks_of(run, [each.tracks for each in run.analyses])
    for one, place in zip(run.found.valued, places_of(run), strict=True):
        assert place is not None
        report, start_ns, end_ns = place
        assert run.reports[report] == one.report
        ahead_ns = clocks[report].origin_ns - clocks[report].zero_ns
        span = pl.col("start_ns") == start_ns - ahead_ns, pl.col("end_ns") == end_ns - ahead_ns
        analysis = run.analyses[report]
        tables = analysis.run_steps if one.finding.beside else analysis.judged
        found = [getattr(analysis.tracks, table).filter(*span).height for table in SLICES]
        assert sum(found)
        starts = tables.view.windows
        inside = pl.lit(start_ns - ahead_ns).is_between("start_ns", "end_ns")
        assert starts.filter(inside).height


def rank(name: str, computes: list[int]) -> nsysflow.Analysis:
    """Steps in which a rank computes so long, and then reduces until the slower one has come."""

    def rows() -> Iterator[tiny.Row]:
        for at, ns in enumerate(computes):
            start, end = at * 400_000, at * 400_000 + 350_000
            yield tiny.opened(start, end + 20_000, "step")
            yield tiny.launch(start + 1_000, start + 2_000, 2 * at)
            yield tiny.kernel(start + 3_000, start + 3_000 + ns, 2 * at)
            yield tiny.launch(start + 2_000, start + 3_000, 2 * at + 1)
            yield tiny.kernel(start + 4_000 + ns, end, 2 * at + 1, name=NCCL)
            yield tiny.call(start + 4_000, end + 1_000, "cudaDeviceSynchronize")

    trace = replace(tiny.trace_of(*rows()), report=name)
    return nsysflow.analyze(trace, Options(skip=0))


def test_a_straggler_is_shown_where_it_is_late_and_not_where_the_others_wait() -> None:
    late = [200_000] * 5 + [240_000] + [200_000] * 2
    run = run_of_these(rank("rank0", [100_000] * 8), rank("rank1", late))
    (at,) = (at for at, one in enumerate(run.found.valued) if one.finding.rule == "straggler")
    assert run.found.valued[at].report == "rank0"
    worst = run.analyses[1].steps.row(5, named=True)
    clock = clocks_of(run, [each.tracks for each in run.analyses])[1]
    ahead_ns = clock.origin_ns - clock.zero_ns
    assert places_of(run)[at] == (1, worst["start_ns"] + ahead_ns, worst["end_ns"] + ahead_ns)
