"""Every kernel by full name, with its class (spec §6)."""

from typing import Final

import polars as pl

from nsysflow.analysis.events.kernel_classes import class_of, functor_of
from nsysflow.analysis.frames.columns import percent, spread
from nsysflow.analysis.frames.scratch import Scratch, in_files, in_slices
from nsysflow.analysis.schema import BLOCK, GRID, blocks_of_grid, grid_as_text
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

KERNELS: Final = TableSchema(
    """One row per device and full kernel name, most time first. `share_pct` is of the device's
    kernel time. `grid`, `block`, `registers` and `shared_bytes` are of the most common launch;
    `waves` is its blocks over the SMs. `tiny_pct` is the share of launches that ran shorter than
    their own launch call took.""",
    [
        *shared("report device"),
        Column("name", pl.String(), "the full name"),
        Column("short_name", pl.String(), "the name without namespace and template arguments"),
        Column(
            "functor",
            pl.String(),
            "what a kernel for any function applies, by its template arguments: `silu_kernel`, "
            "`CUDAFunctor_add`; empty where they do not tell",
        ),
        Column(
            "class",
            pl.String(),
            "what kind of kernel: matmul, attention, elementwise, …; decided by the short name",
        ),
        Column("count", pl.Int64(), "how many launches"),
        *shared("total_ns"),
        Column("mean_ns", pl.Int64(), "the mean duration"),
        *shared("median_ns"),
        Column("min_ns", pl.Int64(), "the shortest duration"),
        Column("max_ns", pl.Int64(), "the longest duration"),
        Column(
            "std_ns",
            pl.Int64(),
            "the standard deviation of the durations; empty for a single one",
        ),
        Column("p95_ns", pl.Int64(), "the duration that 95 % do not exceed"),
        Column("share_pct", pl.Float64(), "the share of the GPU's kernel time"),
        Column("grid", pl.String(), "the blocks of the most common launch"),
        Column("block", pl.String(), "the threads of a block"),
        Column("registers", pl.Int64(), "registers per thread"),
        Column("shared_bytes", pl.Int64(), "shared memory per block"),
        Column(
            "waves",
            pl.Float64(),
            "blocks over the GPU's multiprocessors (SMs); below 1 a part of the chip has nothing "
            "to do",
        ),
        Column(
            "tiny_pct",
            pl.Float64(),
            "the share of launches that ran shorter than their own launch call took",
        ),
    ],
)


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
    sms = view.trace.devices[["device", "sm_count"]].unique("device", keep="first")
    name, short = (pl.col(column).cast(pl.String) for column in ("name", "short_name"))
    return (
        timed.join(_commonest_shape(measured, view.trace.shapes, view.scratch), on=key, how="left")
        .join(sms, on="device", how="left")
        .with_columns(
            name,
            short,
            functor_of(name).alias("functor"),
            class_of(name, short, view.options.kernel_classes).alias("class"),
            percent(pl.col("total_ns"), pl.col("total_ns").sum().over("device")).alias("share_pct"),
            grid_as_text().alias("grid"),
            pl.format("{}x{}x{}", *BLOCK).alias("block"),
            pl.col("registers").cast(pl.Int64),
            (blocks_of_grid() / pl.col("sm_count")).alias("waves"),
        )
        .sort("total_ns", *key, descending=[True, False, False])
    )


def _commonest_shape(
    kernels: pl.DataFrame, shapes: pl.DataFrame, scratch: Scratch | None
) -> pl.DataFrame:
    """Per device and name the most common grid and block, and their most common registers and
    shared memory. Ties go to the smallest."""
    place = [*GRID, *BLOCK]
    memory = ["registers", "shared_bytes"]
    key = ["device", "name"]
    counts = [
        rows[[*key]]
        .hstack(shapes[rows["detail"]].get_columns())
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


TABLES: Final = (
    Table(
        name="kernels",
        schema=KERNELS,
        make=kernel_table,
        json_key="kernels",
        page_rows=3,
        full_rows=20,
        filled_by="record with --trace cuda,nvtx while the GPU is in use",
        shown=(
            "total_ns short_name functor class count median_ns device report share_pct tiny_pct"
            " grid block"
        ),
    ),
)
