"""The calls that block the host: synchronizations, blocking copies, allocations (spec §4)."""

import polars as pl

from nsysflow.analysis.declared.causes import STALLS
from nsysflow.analysis.frames.intervals import Axis, Cover, merge
from nsysflow.analysis.timeline.busy import Busy
from nsysflow.analysis.timeline.events import Events


def stall_calls(calls: pl.DataFrame) -> pl.DataFrame:
    """The sync, blocking copy and alloc calls."""
    return calls.filter(pl.col("class").is_in(STALLS))


def with_gpu_busy(events: Events, stalls: pl.DataFrame, busy: Busy) -> pl.DataFrame:
    """`stalls` plus `process`, `thread`, and `gpu_busy_ns`: how long their GPUs were busy."""
    callers = events.threads.select("thread_no", "thread", "process")
    stalls = stalls.join(callers, on="thread_no", maintain_order="left")
    return stalls.with_columns(_busy_ns(events, stalls, busy))


def _busy_ns(events: Events, stalls: pl.DataFrame, busy: Busy) -> pl.Series:
    """How long any GPU that the caller's process uses was busy during each call."""
    axis = events.axis
    numbers = events.threads.select("thread_no", "process_no")
    processes = events.threads.select("process", "process_no").unique()
    uses = events.users.join(processes, on="process")
    cover = _busy_by_process(busy, uses, axis)
    at = stalls.select("thread_no", "start_ns", "end_ns").join(
        numbers, on="thread_no", maintain_order="left"
    )
    process = pl.col("process_no")
    start = at.select(axis.at(process, pl.col("start_ns")).alias("start"))["start"]
    return cover.between(start, start + (at["end_ns"] - at["start_ns"])).alias("gpu_busy_ns")


def _busy_by_process(busy: Busy, uses: pl.DataFrame, axis: Axis) -> Cover:
    """Busy time of the GPUs that each process uses, on the process axis."""
    pieces = busy.all.intervals.with_columns(
        axis.track(pl.col("start")).cast(pl.UInt32).alias("device_no")
    )
    start = axis.at(pl.col("process_no"), axis.time_ns(pl.col("start")))
    laid = pieces.join(uses, on="device_no").select(
        start.alias("start"), (start + pl.col("end") - pl.col("start")).alias("end")
    )
    return Cover(merge(laid))
