"""Communication kernels, summed up and one by one: bytes and exposed time (spec §9)."""

import polars as pl

from nsysflow.analysis.frames.statistics import median_ns
from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.accounting import hidden_pct


def comm_table(view: View) -> pl.DataFrame:
    """The COMM table, most exposed time first."""
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
