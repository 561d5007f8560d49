"""Memcpys by kind and phase, and one by one (spec §4)."""

from typing import Final

import polars as pl

from nsysflow.analysis.events.activity import BusyTime
from nsysflow.analysis.frames.intervals import Axis, merge
from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

COPIES: Final = TableSchema(
    """One row per process, device, phase, direction and label of memcpys. `exposed_ns` is the
    part of their time in which no kernel ran.""",
    [
        *shared("report process device phase direction copy_label"),
        Column("count", pl.Int64(), "how many copies"),
        *shared("bytes"),
        Column("gpu_ns", pl.Int64(), "the sum of the copies' durations on the GPU"),
        Column("api_ns", pl.Int64(), "time inside their launch calls"),
        Column("exposed_ns", pl.Int64(), "the part of their time in which no kernel ran"),
        Column(
            "induced_idle_ns",
            pl.Int64(),
            "idle GPU time that blocking ones among them brought about",
        ),
    ],
)

EACH_COPY: Final = TableSchema(
    """One row per memcpy, by device and start. `api_ns` and `induced_idle_ns` are of its launch
    call, null without one.""",
    [
        *shared(
            "report process device stream start_ns end_ns phase direction copy_label bytes api"
        ),
        Column("api_ns", pl.Int64(), "the duration of its launch call"),
        *shared("induced_idle_ns"),
    ],
)


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
    api = view.events.calls["name"][copies["call"]].cast(pl.String).alias("api")
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


TABLES: Final = (
    Table(
        name="copies",
        schema=COPIES,
        make=copy_table,
        json_key="copies",
        full_rows=10,
        each="each_copy",
        filled_by="this selection has no copies",
        shown=(
            "direction copy_label phase count bytes device report exposed_ns induced_idle_ns gpu_ns"
        ),
    ),
    Table(
        name="each_copy",
        schema=EACH_COPY,
        make=each_copy,
        csv="never",
        json_key=None,
        filled_by="this selection has no copies",
    ),
)
