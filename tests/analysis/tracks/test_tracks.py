"""The picture against its slow oracle, and the classes of its operations."""

from collections import Counter

import polars as pl
from hypothesis import HealthCheck, given, settings

import nsysflow
from tests.analyses import EXAMPLES, analysed, any_trace, every_report, oracle_of
from tests.analysis.tracks.written import Rows, lanes_of, written
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.report import Report
from tests.oracle.strategies import traces_with_graphs
from tests.oracle.tracks import TRACKS, lanes


def assert_agrees(analysis: nsysflow.Analysis, report: Report) -> None:
    tracks = analysis.tracks
    assert lanes_of(tracks) == lanes(report)
    assert tracks.lanes["lane"].to_list() == [*range(tracks.lanes.height)]
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
def test_the_picture_of_random_graphs_agrees_with_the_oracle(model: PlainTrace) -> None:
    assert_agrees(nsysflow.analyze(to_trace(model)), Report(model))


@every_report
def test_the_picture_of_a_real_report_agrees_with_the_oracle(name: str) -> None:
    assert_agrees(analysed(name), oracle_of(name))


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
