"""The analysis against its slow oracle: every table, on random traces and on real reports."""

from collections import Counter
from dataclasses import replace
from typing import Any

import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.analyze import Analysis
from nsysflow.analysis.options import Options
from nsysflow.analysis.tracks.tracks import Tracks
from tests.agreement import assert_agrees
from tests.analyses import (
    EXAMPLES,
    analysed,
    every_report,
    few_reports,
    oracle_of,
    oracle_tables_of,
)
from tests.analysis.ranks.test_ranks import assert_exchanged_alike
from tests.analysis.test_invariants import assert_invariants
from tests.oracle.clocks import traffic
from tests.oracle.cpu import cpu
from tests.oracle.gap_tables import gaps
from tests.oracle.gil import gil
from tests.oracle.model import GpuTraffic, PlainTrace, to_trace
from tests.oracle.once import unmeasured
from tests.oracle.report import Report
from tests.oracle.strategies import (
    gpu_traffic,
    several,
    traces,
    traces_with_events,
    traces_with_graphs,
    traces_with_readings,
)
from tests.oracle.tracks import TRACKS, lanes
from tests.oracle.waited import Waits

OWN = ((), ("transformers",), ("accelerate/utils.py", "torch"), ("/opt/lib/python3.12/",))


@settings(max_examples=3 * EXAMPLES // 2, suppress_health_check=list(HealthCheck))
@given(
    several(st.one_of(traces(), traces_with_graphs(), traces_with_events())),
    st.sampled_from(OWN),
    st.sampled_from((50_000, 0, 400_000)),
)
def test_random_traces_agree_with_the_oracle(
    model: PlainTrace, own: tuple[str, ...], framework_gap_ns: int
) -> None:
    """All that an analysis has: its tables, its picture, and what its ranks exchange."""
    options = Options(own=own, framework_gap_ns=framework_gap_ns)
    analysis = nsysflow.analyze(to_trace(model), options)
    report = Report(model, own=own, framework_gap_ns=framework_gap_ns)
    assert_agrees(analysis, report)
    assert_pictured_alike(analysis, report)
    assert_exchanged_alike(analysis, report)
    assert_invariants(analysis)
    waits = Waits(report)
    by_rank = sorted(waits.rank, key=lambda op: waits.rank[op])
    sources = [waits.by_event(op) for op in by_rank]
    expected = [None if source is None else waits.rank[source] for source in sources]
    assert analysis.timeline.producers.by_event.to_list() == expected


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(several(traces_with_readings()), st.sampled_from((0, 700, 50_000)))
def test_estimates_of_waits_for_the_lock_agree_with_the_oracle(
    model: PlainTrace, framework_gap_ns: int
) -> None:
    analysis = nsysflow.analyze(to_trace(model), Options(framework_gap_ns=framework_gap_ns))
    report = Report(model, framework_gap_ns=framework_gap_ns)
    assert_agrees(analysis, report, {"gaps": gaps(report), "gil": gil(report), "cpu": cpu(report)})
    assert_pictured_alike(analysis, report)
    both = pl.col("gil_ns").fill_null(0) + pl.col("descheduled_ns").fill_null(0)
    # three others at most, whose parts may be rounded up
    assert analysis.gaps.select((both <= pl.col("host_ns") + 3).all()).item()


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(several(traces()), gpu_traffic())
def test_traffic_agrees_with_the_oracle(model: PlainTrace, readings: list[GpuTraffic]) -> None:
    model = replace(model, gpu_traffic=tuple(readings))
    analysis, report = nsysflow.analyze(to_trace(model)), Report(model)
    assert_agrees(analysis, report, {"traffic": traffic(report)})
    assert_pictured_alike(analysis, report)


@every_report
def test_every_table_of_a_real_report_agrees_with_the_oracle(name: str) -> None:
    assert_agrees(analysed(name), oracle_of(name), oracle_tables_of(name))


@few_reports
def test_the_picture_of_a_real_report_agrees_with_the_oracle(name: str) -> None:
    assert_pictured_alike(analysed(name), oracle_of(name))


_CALL = ("start_ns", "end_ns", "name")
_OP = ("start_ns", "end_ns", "name", "full_name")
_LANE = ("kind", "process", "thread", "device", "stream")

Rows = list[dict[str, Any]]


def assert_pictured_alike(analysis: Analysis, report: Report) -> None:
    """The picture is the oracle's, and its kernels have the classes of the table of kernels."""
    tracks = analysis.tracks
    assert lanes_of(tracks) == lanes(report)
    assert tracks.lanes["lane"].to_list() == [*range(tracks.lanes.height)]
    for name, made in TRACKS.items():
        columns = [column for column in getattr(tracks, name).columns if column != "class"]
        if name == "calls":
            columns.append("class")
        found = counted(written(analysis, name), columns)
        wanted = counted(made(report), columns)
        assert [*(found - wanted)] == [*(wanted - found)], name
    kernels = analysis.kernels.select("name", "class").unique()
    drawn = tracks.operations.filter(
        pl.col("full_name").cast(pl.String).is_in(kernels["name"].implode())
    ).select(pl.col("full_name", "class").cast(pl.String))
    assert dict(drawn.unique().rows()) == {
        name: "communication" if kind == "comm" else kind for name, kind in kernels.rows()
    }


@unmeasured
def counted(rows: Rows, columns: list[str]) -> Counter[tuple[object, ...]]:
    return Counter(tuple(_plain(row[column]) for column in columns) for row in rows)


def _plain(value: object) -> object:
    return tuple(sorted(value.items())) if isinstance(value, dict) else value


def written(analysis: Analysis, name: str) -> Rows:
    """The rows of one of the frames of its picture, in order."""
    tracks = analysis.tracks
    lanes = lanes_of(tracks)
    calls = [
        (*row[:3], lanes[row[3]]["thread"]) for row in tracks.calls.select(*_CALL, "lane").rows()
    ]
    ops = [
        (*row[:4], lanes[row[4]]["device"], lanes[row[4]]["stream"])
        for row in tracks.operations.select(*_OP, "lane").rows()
    ]
    paths = dict(tracks.paths.rows())
    named = {
        "lane": lanes,
        "call": calls,
        "culprit_call": calls,
        "prev_op": ops,
        "next_op": ops,
        "culprit_op": ops,
        "phase": paths,
        "first": tracks.host_stacks.select("start_ns", "end_ns").rows(),
        "shape": analysis.trace.shapes.rows(),
        "copy": analysis.trace.copy_details.rows(),
    }
    frame: pl.DataFrame = getattr(tracks, name)
    rows = frame.to_dicts()
    for row in rows:
        for column in named.keys() & row.keys():
            number = row[column]
            row[column] = None if number is None else named[column][number]  # type: ignore[index]
    return rows


def lanes_of(tracks: Tracks) -> Rows:
    """What each lane is of."""
    return tracks.lanes.select(_LANE).to_dicts()
