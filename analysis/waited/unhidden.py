"""A trace without the communication and copies that nobody waited for (spec §15)."""

from dataclasses import replace
from typing import Final

import polars as pl

from nsysflow.analysis.frames.lookup import scatter_table
from nsysflow.analysis.timeline.busy import Busy
from nsysflow.analysis.timeline.events import Events

LEAST_PCT: Final = 1
"""Less than this of the devices' time changes no bound, and causes take long to compute twice."""

WAITED: Final = ("communication", "copy")


def unhidden(events: Events, pieces: pl.DataFrame, busy: Busy) -> Events | None:
    """`events` with copies and communication kernels only while they were waited for; None where
    that makes no difference.

    Args:
        events: the trace.
        pieces: of `split`.
        busy: when each device was busy.
    """
    length = pl.col("end_ns") - pl.col("start_ns")
    awaited = pieces.filter(pl.col("kind").is_in(WAITED))
    compute_ns = _total_ns(busy.compute.intervals)
    hiding_ns = _total_ns(busy.all.intervals) - compute_ns - awaited.select(length.sum()).item()
    window_ns = compute_ns + pieces.select(length.sum()).item()
    if hiding_ns * 100 < LEAST_PCT * window_ns or hiding_ns == 0:
        return None
    since = scatter_table(len(events.ops), awaited["op"], awaited["start_ns"]).alias("since_ns")
    kept = (pl.col("part") == "compute") | pl.col("since_ns").is_not_null()
    start = pl.max_horizontal("start_ns", "since_ns").alias("start_ns")
    ops = events.ops.with_columns(since).filter(kept).with_columns(start).drop("since_ns", "op")
    place = events.axis.at(pl.col("device_no"), pl.col("start_ns")).alias("place")
    ops = ops.with_columns(place).sort("place", maintain_order=True)
    ops = ops.with_row_index("op").select(events.ops.columns)
    return replace(events, ops=ops)


def _total_ns(intervals: pl.DataFrame) -> int:
    return int(intervals.select((pl.col("end") - pl.col("start")).sum()).item())
