"""Communication kernels, summed up and one by one: bytes and exposed time (spec §9)."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.columns import median_ns
from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.accounting import hidden_pct
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

COMM: Final = TableSchema(
    """One row per process, device, phase, kernel (`name`, short) and NCCL operation (`operation`,
    e.g. `ncclAllReduce`). `bytes` sums the message sizes that NCCL states, null where it states
    none. `total_ns` and `median_ns` are of durations. An instant with several communication kernels
    counts in `busy_ns` for the one that started first. `exposed_ns` is the part of it without
    compute, and sums to the accounting's `comm_exposed_ns`; `hidden_pct` is the rest's share.""",
    [
        *shared("report process device phase"),
        Column("name", pl.String(), "the kernel's short name"),
        *shared("operation"),
        Column("count", pl.Int64(), "how many kernels start in the window"),
        Column(
            "bytes",
            pl.Int64(),
            "the sum of the message sizes that NCCL states; empty where it states none",
        ),
        *shared("total_ns median_ns"),
        Column(
            "busy_ns",
            pl.Int64(),
            "time in which one of them runs; shared time counts for the kernel that started first",
        ),
        *shared("exposed_ns"),
        Column("hidden_pct", pl.Float64(), "the share of that time with compute running too"),
    ],
)

COLLECTIVES: Final = TableSchema(
    """One row per communication kernel, by device and start.""",
    [
        *shared("report process device stream start_ns end_ns phase"),
        Column("name", pl.String(), "the kernel's short name"),
        *shared("operation"),
        Column(
            "bytes",
            pl.Int64(),
            "the message size that NCCL states; empty where it states none",
        ),
        Column("communicator", pl.UInt64(), "NCCL's number of the communicator"),
        Column(
            "busy_ns",
            pl.Int64(),
            "its time, without what it shares with a kernel that started before",
        ),
        *shared("exposed_ns"),
    ],
)


def comm_table(view: View) -> pl.DataFrame:
    """The COMM table, most exposed time first."""
    if view.communication.is_empty():
        return COMM.to_frame()
    key = ["process", "device", "phase", "name", "operation"]
    here = pl.col("counted").fill_null(value=False)
    ns = (pl.col("end_ns") - pl.col("start_ns")).filter(here)
    counted = view.ops.select("op", pl.lit(value=True).alias("counted"))
    measured = pl.col("bytes").filter(here)
    return (
        _named(view.communication)
        .join(counted, on="op", how="left")
        .filter(here | (pl.col("busy_ns") > 0))
        .group_by(key)
        .agg(
            here.sum().cast(pl.Int64).alias("count"),
            pl.when(measured.count() > 0).then(measured.sum()).alias("bytes"),
            ns.sum().alias("total_ns"),
            median_ns(ns).alias("median_ns"),
            pl.col("busy_ns", "exposed_ns").sum(),
        )
        .with_columns(hidden_pct(pl.col("exposed_ns"), pl.col("busy_ns")).alias("hidden_pct"))
        .sort("exposed_ns", "busy_ns", *key, descending=[True, True, *[False] * len(key)])
    )


def collectives(view: View) -> pl.DataFrame:
    """The COLLECTIVES table: the communication kernels that start in the windows."""
    begun = view.communication.join(view.ops, on="op", how="semi", maintain_order="left")
    return _named(begun).sort("device", "op")


def _named(kernels: pl.DataFrame) -> pl.DataFrame:
    return kernels.with_columns(
        pl.col("short_name").cast(pl.String).alias("name"),
        os_pid(pl.col("process")).alias("process"),
    )


TABLES: Final = (
    Table(
        name="comm",
        schema=COMM,
        make=comm_table,
        json_key="comm",
        page_rows=3,
        full_rows=20,
        each="collectives",
        filled_by="this selection has no communication kernels",
        shown=(
            "operation phase count exposed_ns hidden_pct bytes device report median_ns "
            "total_ns name"
        ),
    ),
    Table(
        name="collectives",
        schema=COLLECTIVES,
        make=collectives,
        csv="never",
        json_key=None,
        filled_by="this selection has no communication kernels",
    ),
)
