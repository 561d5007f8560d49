"""What each stall call blocked, and what that cost (spec §4): ranked by induced idle."""

import polars as pl

from nsysflow.analysis.accounting import Busy
from nsysflow.analysis.intervals import Axis, Cover, merge
from nsysflow.analysis.keys import os_pid, os_tid
from nsysflow.analysis.prepare import Prepared
from nsysflow.analysis.schema import INDUCED, STALL_CAUSES, SYNCS


def stall_calls(calls: pl.DataFrame) -> pl.DataFrame:
    """The sync, blocking copy and alloc calls."""
    return calls.filter(pl.col("class").is_in(STALL_CAUSES))


def _without_inner(stalls: pl.DataFrame, charged: pl.Series) -> pl.DataFrame:
    """With backtraces the profiler records many calls twice, the runtime's and the driver's inside
    it, under one correlation id: the inner one has a row only where it was charged itself."""
    named = stalls.filter(pl.col("correlation").is_not_null())
    outermost = named.sort("start_ns", -pl.col("end_ns"), "call").unique(
        ["process", "correlation"], keep="first"
    )
    if len(outermost) == len(named):
        return stalls
    kept = pl.concat([outermost["call"], charged]).implode()
    return stalls.filter(pl.col("correlation").is_null() | pl.col("call").is_in(kept))


def stall_rows(prepared: Prepared, stalls: pl.DataFrame, busy: Busy) -> pl.DataFrame:
    """`stalls` plus `process`, `thread` and `gpu_busy_ns`, how busy their GPUs were meanwhile."""
    callers = prepared.threads.select("thread_no", "thread", "process")
    stalls = stalls.join(callers, on="thread_no", maintain_order="left")
    return stalls.with_columns(_busy_ns(prepared, stalls, busy))


def sync_table(stalls: pl.DataFrame, charges: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """The `SYNCS` table, without `report`.

    Args:
        stalls: of `stall_rows`, with `phase`.
        charges: `causes.CHARGES`.
        facts: `copies.copy_facts`.
    """
    induced = charges.group_by("call").agg(pl.col("ns").sum().alias("induced_idle_ns"))
    rows = (
        _without_inner(stalls, charges["call"])
        .join(induced, on="call", how="left")
        .with_columns(pl.col("induced_idle_ns").fill_null(0))
        .sort("induced_idle_ns", "start_ns", "call", descending=[True, False, False])
    )
    return _told(rows, facts).select([name for name in SYNCS if name != "report"])


def induced_table(stalls: pl.DataFrame, charges: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """The `INDUCED` table, without `report`; arguments as for `sync_table`, `charges` with the
    `device` of their gaps."""
    induced = charges.group_by("call", "device").agg(pl.col("ns").sum().alias("induced_idle_ns"))
    rows = stalls.join(induced, on="call").sort("call", "device")
    return _told(rows, facts).select([name for name in INDUCED if name != "report"])


def _told(rows: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """Rows of stall calls as people know them, with what their copies moved."""
    moved = facts.group_by("call").agg(
        pl.col("bytes").sum(), pl.col("direction", "copy_label").first()
    )
    return rows.join(moved, on="call", how="left", maintain_order="left").with_columns(
        os_pid(pl.col("process")).alias("process"),
        pl.col("name").cast(pl.String).alias("api"),
        pl.col("class").cast(pl.String).alias("kind"),
        os_tid(pl.col("thread")).alias("thread"),
        (pl.col("end_ns") - pl.col("start_ns")).alias("blocked_ns"),
        pl.col("source").cast(pl.String),
    )


def _busy_ns(prepared: Prepared, stalls: pl.DataFrame, busy: Busy) -> pl.Series:
    """How long any GPU that the caller's process uses was busy during each call."""
    axis = prepared.axis
    numbers = prepared.threads.select("thread_no", "process_no")
    processes = prepared.threads.select("process", "process_no").unique()
    uses = prepared.ops.select("process", "device_no").unique().join(processes, on="process")
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
