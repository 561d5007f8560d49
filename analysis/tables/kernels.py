"""Every kernel by full name, with its class (spec §6)."""

import polars as pl

from nsysflow.analysis.frames.scratch import Scratch, in_files, in_slices
from nsysflow.analysis.frames.statistics import percent, spread
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.kernel_classes import class_of


def kernel_table(view: View) -> pl.DataFrame:
    """The KERNELS table, most time first."""
    kernels = view.ops.lazy().filter(pl.col("kind") == "kernel")
    call_ns = pl.col("launch_end_ns") - pl.col("launch_start_ns")
    ns = pl.col("end_ns") - pl.col("start_ns")
    measured = kernels.select(
        "device", "name", "short_name", "detail", ns.alias("ns"), call_ns.alias("call_ns")
    ).collect()
    measured = in_files(measured, view.scratch)
    key = ["device", "name"]
    tiny = (pl.col("ns") < pl.col("call_ns")).sum()
    timed = measured.group_by(key).agg(
        pl.col("short_name").first(),
        pl.len().cast(pl.Int64).alias("count"),
        pl.col("ns").sum().alias("total_ns"),
        *spread(pl.col("ns")),
        percent(tiny, pl.col("call_ns").count()).alias("tiny_pct"),
    )
    sms = view.trace.devices.select("device", "sm_count").unique("device", keep="first")
    blocks = pl.col("grid_x").cast(pl.Int64) * pl.col("grid_y") * pl.col("grid_z")
    name, short = (pl.col(column).cast(pl.String) for column in ("name", "short_name"))
    return (
        timed.join(_commonest_shape(measured, view.trace.shapes, view.scratch), on=key, how="left")
        .join(sms, on="device", how="left")
        .with_columns(
            name,
            short,
            class_of(name, short, view.options.kernel_classes).alias("class"),
            percent(pl.col("total_ns"), pl.col("total_ns").sum().over("device")).alias("share_pct"),
            pl.format("{}x{}x{}", "grid_x", "grid_y", "grid_z").alias("grid"),
            pl.format("{}x{}x{}", "block_x", "block_y", "block_z").alias("block"),
            pl.col("registers").cast(pl.Int64),
            (blocks / pl.col("sm_count")).alias("waves"),
        )
        .sort("total_ns", *key, descending=[True, False, False])
    )


def _commonest_shape(
    kernels: pl.DataFrame, shapes: pl.DataFrame, scratch: Scratch | None
) -> pl.DataFrame:
    """Per device and name the most common grid and block, and their most common registers and
    shared memory. Ties go to the smallest."""
    place = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]
    memory = ["registers", "shared_bytes"]
    key = ["device", "name"]
    counts = [
        rows.select(*key)
        .hstack(shapes.select(pl.all().gather(rows["detail"])).get_columns())
        .group_by(*key, *place, *memory)
        .agg(pl.len().alias("count"))
        for rows in in_slices(kernels, scratch)
    ]
    counted = (
        pl.concat(counts)
        .group_by(*key, *place, *memory)
        .agg(pl.col("count").sum())
        .with_columns(pl.col("count").sum().over(*key, *place).alias("place_count"))
    )
    return (
        counted.sort(
            *key,
            -pl.col("place_count").cast(pl.Int64),
            *place,
            -pl.col("count").cast(pl.Int64),
            *memory,
        )
        .unique(key, keep="first", maintain_order=True)
        .drop("count", "place_count")
    )
