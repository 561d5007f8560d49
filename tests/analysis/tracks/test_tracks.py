"""The picture against its slow oracle, and what holds of every picture."""

from collections import Counter

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings

import nsysflow
from tests.analyses import CAUSE_COLUMNS, EXAMPLES, analysed, any_trace, every_report, oracle_of
from tests.analysis.tracks.written import Rows, lanes_of, written
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.report import Report
from tests.oracle.strategies import traces_with_graphs
from tests.oracle.tracks import TRACKS, lanes

KINDS_OF = {
    "steps": "steps",
    "ranges": "phases",
    "calls": "calls",
    "host_stacks": "host_stack",
    "profiler": "profiler",
    "gaps": "gaps",
    "operations": "stream",
    "counters": "counter",
}


def assert_agrees(analysis: nsysflow.Analysis, report: Report) -> None:
    tracks = analysis.tracks
    assert lanes_of(tracks) == lanes(report)
    for name, made in TRACKS.items():
        expected = made(report)
        columns = [column for column in getattr(tracks, name).columns if column != "class"]
        if name == "calls":
            columns.append("class")
        found = counted(written(analysis, name), columns)
        wanted = counted(expected, columns)
        assert [*(found - wanted)] == [*(wanted - found)], name


def counted(rows: Rows, columns: list[str]) -> Counter[tuple[object, ...]]:
    return Counter(tuple(_plain(row[column]) for column in columns) for row in rows)


def _plain(value: object) -> object:
    return tuple(sorted(value.items())) if isinstance(value, dict) else value


@any_trace
def test_the_picture_of_a_random_trace_agrees_with_the_oracle(model: PlainTrace) -> None:
    assert_agrees(nsysflow.analyze(to_trace(model)), Report(model))


@given(traces_with_graphs())
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
def test_the_picture_of_a_random_trace_with_graphs_agrees_with_the_oracle(
    model: PlainTrace,
) -> None:
    assert_agrees(nsysflow.analyze(to_trace(model)), Report(model))


@every_report
def test_the_picture_of_a_real_report_agrees_with_the_oracle(name: str) -> None:
    assert_agrees(analysed(name), oracle_of(name))


@every_report
def test_the_gaps_of_the_picture_are_those_of_the_table(name: str) -> None:
    analysis = analysed(name)
    columns = ["device", "start_ns", "end_ns", "cause", *CAUSE_COLUMNS]
    drawn = analysis.tracks.gaps.select(columns)
    assert drawn.equals(analysis.gaps.select(columns))
    assert (drawn["end_ns"] - drawn["start_ns"]).equals(
        drawn.select(pl.sum_horizontal(CAUSE_COLUMNS)).to_series(), check_names=False
    )


@every_report
def test_a_gap_lies_between_the_operations_that_it_names(name: str) -> None:
    tracks = analysed(name).tracks
    ops, gaps = tracks.operations, tracks.gaps
    before, after = ops["end_ns"].gather(gaps["prev_op"]), ops["start_ns"].gather(gaps["next_op"])
    assert before.equals(gaps["start_ns"], check_names=False)
    assert after.equals(gaps["end_ns"], check_names=False)


@every_report
def test_nothing_of_a_report_is_dropped_or_drawn_twice(name: str) -> None:
    analysis = analysed(name)
    tracks, events = analysis.tracks, analysis.timeline.events
    drawn = {"operations": events.ops, "calls": events.calls, "profiler": events.overhead}
    for table, rows in drawn.items():
        times = [frame.select("start_ns", "end_ns") for frame in (getattr(tracks, table), rows)]
        one, other = (each.sort("start_ns", "end_ns") for each in times)
        assert one.equals(other), table


@every_report
@pytest.mark.parametrize("table", ["operations", "calls", "ranges", "profiler"])
def test_slices_at_one_depth_of_a_lane_do_not_overlap(name: str, table: str) -> None:
    rows = getattr(analysed(name).tracks, table).sort("lane", "depth", "start_ns", "end_ns")
    before = pl.col("end_ns").shift(1).over("lane", "depth")
    assert rows.filter(pl.col("start_ns") < before).is_empty()


@every_report
def test_every_row_is_on_a_lane_of_its_kind_and_every_lane_has_rows(name: str) -> None:
    tracks = analysed(name).tracks
    used = {
        lane: table
        for table in KINDS_OF
        for lane in getattr(tracks, table)["lane"].unique().to_list()
    }
    kinds = dict(tracks.lanes.select("lane", "kind").rows())
    assert {lane: KINDS_OF[table] for lane, table in used.items()} == kinds
    assert tracks.lanes["lane"].to_list() == list(range(tracks.lanes.height))


@every_report
def test_an_operation_has_the_class_that_the_table_of_kernels_gives_it(name: str) -> None:
    analysis = analysed(name)
    kernels = analysis.kernels.select("name", "class").unique()
    drawn = analysis.tracks.operations.filter(
        pl.col("full_name").cast(pl.String).is_in(kernels["name"].implode())
    ).select(pl.col("full_name", "class").cast(pl.String))
    found = dict(drawn.unique().rows())
    assert found == {
        name: "communication" if kind == "comm" else kind for name, kind in kernels.rows()
    }
