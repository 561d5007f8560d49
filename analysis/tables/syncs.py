"""Calls that block the host, and the idle time behind each (spec §4)."""

import polars as pl

from nsysflow.analysis.schema import os_pid, os_tid
from nsysflow.analysis.selection.view import View


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
    next_op = view.timeline.bare_gaps["next_op"].gather(charges["gap"])
    device = ops["device"].gather(next_op).alias("device")
    induced = (
        charges.with_columns(device)
        .group_by("call", "device")
        .agg(pl.col("ns").sum().alias("induced_idle_ns"))
    )
    rows = view.timeline.stalls.join(induced, on="call").sort("call", "device")
    return _described(rows, view.copies)


def without_inner(stalls: pl.DataFrame, charged: pl.Series) -> pl.DataFrame:
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
