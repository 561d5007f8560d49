"""Calls that block the host, and the idle time behind each (spec §4)."""

from typing import Final

import polars as pl

from nsysflow.analysis.events.activity import BlockingCalls
from nsysflow.analysis.schema import os_pid, os_tid
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

SYNCS: Final = TableSchema(
    """One row per synchronization, blocking copy and allocation, ranked by the idle time behind it
    (`induced_idle_ns`). `kind` is the call's class. `gpu_busy_ns` is how much of the wait a GPU of
    the process was busy.""",
    [
        *shared("report process api"),
        Column("kind", pl.String(), "what it is: sync, blocking_copy or alloc"),
        Column("thread", pl.Int64(), "the id (tid) of the thread that called"),
        *shared("start_ns"),
        Column(
            "blocked_ns",
            pl.Int64(),
            "how long the call lasted; a long wait costs nothing while the GPU is busy",
        ),
        Column(
            "gpu_busy_ns",
            pl.Int64(),
            "how much of the wait a GPU of the process was busy; that part costs nothing",
        ),
        *shared("induced_idle_ns"),
        Column("phase", pl.String(), "the NVTX ranges in which the call was made"),
        *shared("source via"),
        Column("bytes", pl.Int64(), "how many bytes a blocking copy moved"),
        *shared("direction copy_label"),
    ],
)

INDUCED: Final = TableSchema(
    """One row per call and device with idle time behind the call; syncs has the sum over devices.
    `call` numbers the calls.""",
    [
        *shared("report process api"),
        Column("kind", pl.String(), "what it is: sync, blocking_copy or alloc"),
        Column("thread", pl.Int64(), "the id (tid) of the thread that called"),
        *shared("start_ns"),
        Column("blocked_ns", pl.Int64(), "how long the call lasted"),
        Column("gpu_busy_ns", pl.Int64(), "how much of the wait a GPU of the process was busy"),
        Column("induced_idle_ns", pl.Int64(), "idle time of this GPU that the call brought about"),
        Column("phase", pl.String(), "the NVTX ranges in which the call was made"),
        *shared("source via"),
        Column("bytes", pl.Int64(), "how many bytes a blocking copy moved"),
        *shared("direction copy_label device"),
        Column(
            "call",
            pl.UInt32(),
            "the call's number; equal in the rows of one call on several GPUs",
        ),
    ],
)


def sync_table(view: View) -> pl.DataFrame:
    """The SYNCS table, the most idle time behind a call first."""
    charges = view.charges
    induced = charges.group_by("call").agg(pl.col("ns").sum().alias("induced_idle_ns"))
    rows = (
        without_inner(view.timeline.stalls, charges["call"])
        .join(induced, on="call", how="left")
        .with_columns(pl.col("induced_idle_ns").fill_null(0))
        .pipe(view.stalls_in_sight)
        .sort("induced_idle_ns", "start_ns", "call", descending=[True, False, False])
    )
    return _described(rows, view.copies)


def induced_table(view: View) -> pl.DataFrame:
    """The INDUCED table, by call and device."""
    charges, ops = view.charges, view.events.ops
    next_op = view.timeline.bare_gaps["next_op"][charges["gap"]]
    device = ops["device"][next_op].alias("device")
    induced = (
        charges.with_columns(device)
        .group_by("call", "device")
        .agg(pl.col("ns").sum().alias("induced_idle_ns"))
    )
    rows = view.timeline.stalls.join(induced, on="call").sort("call", "device")
    return _described(rows, view.copies)


def without_inner(stalls: BlockingCalls, charged: pl.Series) -> BlockingCalls:
    """`stalls` without the driver's calls inside runtime calls, unless they were charged
    themselves.

    With backtraces the profiler records both, under one correlation id.
    """
    named = stalls.filter(pl.col("correlation").is_not_null())
    outermost = named.sort("start_ns", -pl.col("end_ns"), "call").unique(
        ["process", "correlation"], keep="first"
    )
    if len(outermost) == len(named):
        return stalls
    kept = pl.concat([outermost["call"], charged]).implode()
    return stalls.filter(pl.col("correlation").is_null() | pl.col("call").is_in(kept))


def _described(rows: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """`rows` with the OS ids, names, and the bytes and direction of their copies."""
    moved = copies.group_by("call").agg(
        pl.col("bytes").sum(), pl.col("direction", "copy_label").first()
    )
    return rows.join(moved, on="call", how="left", maintain_order="left").with_columns(
        os_pid(pl.col("process")).alias("process"),
        pl.col("name").cast(pl.String).alias("api"),
        pl.col("class").cast(pl.String).alias("kind"),
        os_tid(pl.col("thread")).alias("thread"),
        (pl.col("end_ns") - pl.col("start_ns")).alias("blocked_ns"),
        pl.col("source", "via").cast(pl.String),
    )


TABLES: Final = (
    Table(
        name="syncs",
        schema=SYNCS,
        make=sync_table,
        json_key="syncs",
        page_rows=3,
        full_rows=10,
        by_device="induced",
        filled_by="this selection has no waits, blocking copies or allocations",
        shown=(
            "induced_idle_ns api source phase blocked_ns report process start_ns bytes copy_label"
        ),
    ),
    Table(
        name="induced",
        schema=INDUCED,
        make=induced_table,
        csv="never",
        json_key=None,
        filled_by="this selection has no waits, blocking copies or allocations",
    ),
)
