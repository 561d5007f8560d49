"""What the host was running at the `host` and `launch` instants of each gap (spec §17.4 to §17.6).

The instants are those of step 2 of spec §3. Step 3 takes some of them away, and windows cut them:
`view.windows.left_of_instants`.
"""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.intervals import on_axis, overlaps
from nsysflow.analysis.gaps.call_time import CallTime
from nsysflow.analysis.gaps.cause_shares import Span
from nsysflow.analysis.gaps.host_time import between_calls
from nsysflow.analysis.gaps.run_ahead import HostSide
from nsysflow.analysis.samples.cells import cells
from nsysflow.analysis.schema import CAUSE
from nsysflow.analysis.timeline.events import Events

INSTANTS: Final = pl.Schema(
    {
        "gap": pl.UInt32(),
        "cause": CAUSE,
        "path": pl.UInt32(),
        "thread_no": pl.UInt32(),
        "stack": pl.UInt32(),
        "cell": pl.UInt32(),
        "order": pl.Int64(),
        "ns": pl.Int64(),
    }
)
"""The instants of a gap, a row per cause, place, thread and cell. `path` is null outside all
ranges, `stack` and `cell` where nothing stands for the time. `order` breaks ties (spec §17.6)."""

_PIECE: Final = ["gap", "path", "thread_no", "stack", "cell", "order", "ns"]

_HOLE: Final = 1 << 32
_SECOND: Final = 1 << 33
"""In `order`, what nothing stands for comes after all cells of its thread, and the thread of the
next launch after that of the previous one."""


def host_instants(
    events: Events, side: HostSide, host_path: pl.Series, path_of_call: pl.Series
) -> pl.DataFrame:
    """`INSTANTS` of all gaps.

    Args:
        events: the trace.
        side: the host in the gaps that it kept waiting.
        host_path: per gap, where the host was between calls.
        path_of_call: where each launch call was made.
    """
    pieces = _pieces(events, side)
    start, end = pieces["start"], pieces["end"]
    ns = {name: cover.between(start, end) for name, cover in side.time.covers.items()}
    host_ns, between_ns = between_calls(ns, end - start)
    host = host_path.gather(pieces["gap"]).alias("path")
    in_calls = _in_calls(pieces, Span.of(side.time.launch, start, end), path_of_call)
    pieces = pieces.drop("start", "end")
    found = [
        _summed([pieces.with_columns(host, host_ns.alias("ns"))], "host"),
        _summed([pieces.with_columns(host, between_ns.alias("ns")), in_calls], "launch"),
    ]
    return pl.concat(found)


def _pieces(events: Events, side: HostSide) -> pl.DataFrame:
    """The host time of each gap, cut at the borders of the cells of the thread that it looks at.

    Returns:
        `gap`, `thread_no`, `stack`, `cell`, `order`, and `start` and `end` on the axis of lanes, in
        order.
    """
    asked, axis = _threads_asked(events, side.waiting), events.axis
    tiles = cells(events)
    found = overlaps(asked.hstack(on_axis(asked, axis, "thread_no")), tiles)
    stack, cell = (tiles[name].gather(found["other"]) for name in ("stack", "cell"))
    start = axis.at(pl.col("lane"), axis.time_ns(pl.col("start")))
    return found.select(
        "gap",
        "thread_no",
        stack,
        cell,
        (pl.col("order") + pl.lit(cell).cast(pl.Int64).fill_null(_HOLE)).alias("order"),
        start.alias("start"),
        (start + pl.col("end") - pl.col("start")).alias("end"),
    ).sort("start")


def _threads_asked(events: Events, waiting: pl.DataFrame) -> pl.DataFrame:
    """Which thread each gap looks at when: `gap`, `lane`, `thread_no`, `order`, `start_ns`,
    `end_ns`.

    That is the thread of the launch before, up to the first call of the next launch's thread that
    ends in the gap, and then this thread.
    """
    axis, calls = events.axis, events.calls
    reached = calls.select(axis.at(pl.col("thread_no"), pl.col("end_ns")).cum_max()).to_series()
    gap_start = waiting.select(axis.at(pl.col("next_no"), pl.col("start_ns"))).to_series()
    first = calls["start_ns"].gather(reached.search_sorted(gap_start, side="right"))
    begun = first.alias("begun_ns").to_frame()
    waiting = waiting.hstack(begun).with_columns(
        pl.when(pl.col("other_no").is_null())
        .then("start_ns")
        .otherwise(pl.col("begun_ns").clip("start_ns", "launched_ns"))
        .alias("begun_ns")
    )
    start, middle, end = pl.col("start_ns"), pl.col("begun_ns"), pl.col("launched_ns")
    threads = [
        waiting.select(
            "gap",
            "lane",
            pl.col(thread).alias("thread_no"),
            pl.lit(order, pl.Int64).alias("order"),
            begin.alias("start_ns"),
            stop.alias("end_ns"),
        )
        for thread, order, begin, stop in (
            ("other_no", 0, start, middle),
            ("next_no", _SECOND, middle, end),
        )
    ]
    return pl.concat(threads).filter(pl.col("end_ns") > pl.col("start_ns"))


def _in_calls(pieces: pl.DataFrame, launch: Span, path_of_call: pl.Series) -> pl.DataFrame:
    """The time inside launch calls: the pieces with `path` and `ns`, a row per path."""
    row = pl.int_range(len(pieces), dtype=pl.UInt32, eager=True)
    found = CallTime.last_of(launch, row, launch.ns)
    places = found.places(path_of_call)
    touched = pieces.drop("start", "end")[places["gap"]]
    alone = touched.with_columns(places["path"], places["inside_ns"].alias("ns"))
    shared = touched.hstack(found.spans.select("begin", "stop")).filter(places["several"])
    cut = launch.cover.slices(shared)
    cut = cut.with_columns(path_of_call.gather(cut["owner"]).alias("path"))
    return pl.concat([alone.filter(~places["several"]), cut.select(alone.columns)])


def _summed(rows: list[pl.DataFrame], cause: str) -> pl.DataFrame:
    """`INSTANTS` of one cause, from pieces with `path` and `ns`."""
    key = ["gap", "path", "order"]
    found = pl.concat([each.filter(pl.col("ns") > 0).select(_PIECE) for each in rows])
    several = found.select(pl.struct(key).is_duplicated()).to_series()
    summed = found.filter(several).group_by(key).agg(pl.exclude("ns").first(), pl.col("ns").sum())
    both = pl.concat([found.filter(~several), summed.select(_PIECE)])
    return both.with_columns(pl.lit(cause, CAUSE).alias("cause")).match_to_schema(INSTANTS)
