"""Tracks written out: rows that name each other by what they are, as the oracle's do."""

from typing import Any

import polars as pl

from nsysflow.analysis.analyze import Analysis
from nsysflow.analysis.tracks.tracks import Tracks

_CALL = ("start_ns", "end_ns", "name")
_OP = ("start_ns", "end_ns", "name", "full_name")
_LANE = ("kind", "process", "thread", "device", "stream")

Rows = list[dict[str, Any]]


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
