"""Memcpys by kind and phase, and one by one (spec §4)."""

import polars as pl

from nsysflow.analysis.events.busy import BusyTime
from nsysflow.analysis.frames.intervals import Axis, merge
from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.selection.view import View


def copy_table(view: View) -> pl.DataFrame:
    """The COPIES table, most GPU time first."""
    key = ["process", "device_no", "phase", "direction", "copy_label"]
    copies = view.copies.join(_induced(view), on="call", how="left", maintain_order="left")
    call_ns = pl.col("launch_end_ns") - pl.col("launch_start_ns")
    of_calls = (
        copies.filter(pl.col("call").is_not_null())
        .unique([*key, "call"])
        .group_by(key)
        .agg(call_ns.sum().alias("api_ns"), pl.col("induced_idle_ns").sum())
    )
    sums = copies.group_by(key).agg(
        pl.col("device").first(),
        pl.len().cast(pl.Int64).alias("count"),
        pl.col("bytes").sum(),
        (pl.col("end_ns") - pl.col("start_ns")).sum().alias("gpu_ns"),
    )
    exposed = _exposed(copies, key, view.busy, view.events.axis)
    return (
        sums.join(exposed, on=key, nulls_equal=True)
        .join(of_calls, on=key, how="left", nulls_equal=True)
        .with_columns(pl.col("api_ns", "induced_idle_ns").fill_null(0))
        .sort("gpu_ns", *key, descending=[True, *[False] * len(key)])
        .with_columns(os_pid(pl.col("process")).alias("process"))
    )


def each_copy(view: View) -> pl.DataFrame:
    """The EACH_COPY table, by device and start."""
    copies = view.copies
    launched = pl.col("call").is_not_null()
    api = view.events.calls["name"].gather(copies["call"]).cast(pl.String).alias("api")
    return (
        copies.with_columns(api)
        .join(_induced(view), on="call", how="left")
        .with_columns(
            os_pid(pl.col("process")).alias("process"),
            (pl.col("launch_end_ns") - pl.col("launch_start_ns")).alias("api_ns"),
            pl.when(launched).then(pl.col("induced_idle_ns").fill_null(0)),
        )
        .sort("device", "start_ns", "end_ns", "stream")
    )


def _induced(view: View) -> pl.DataFrame:
    """The idle time behind each call."""
    return view.charges.group_by("call").agg(pl.col("ns").sum().alias("induced_idle_ns"))


def _exposed(copies: pl.DataFrame, key: list[str], busy: BusyTime, axis: Axis) -> pl.DataFrame:
    """Per group `exposed_ns`: the union of its copies, without the time in which a kernel ran."""
    groups = copies.select(key).unique().with_row_index("group")
    rows = copies.join(groups, on=key, nulls_equal=True)
    laid = rows.select(
        axis.at(pl.col("group"), pl.col("start_ns")).alias("start"),
        axis.at(pl.col("group"), pl.col("end_ns")).alias("end"),
    )
    union = merge(laid).with_columns(axis.track(pl.col("start")).cast(pl.UInt32).alias("group"))
    union = union.join(groups, on="group", maintain_order="left")
    start = union.select(
        axis.at(pl.col("device_no"), axis.time_ns(pl.col("start"))).alias("start")
    )["start"]
    length = union["end"] - union["start"]
    hidden = busy.with_comm.between(start, start + length)
    exposed = union.select(*key, (length - hidden).alias("exposed_ns"))
    return exposed.group_by(key).agg(pl.col("exposed_ns").sum())
