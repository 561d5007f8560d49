"""Tracks written out: rows that name each other by what they are, as the oracle's do."""

from collections import Counter
from typing import Any

import polars as pl

from nsysflow.analysis.analyze import Analysis
from nsysflow.analysis.tracks.tracks import Tracks
from tests.oracle.report import Report
from tests.oracle.tracks import TRACKS, lanes
from tests.oracle.unmeasured import unmeasured

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
