"""Operators with their shapes: FLOPs, bytes, and how near they come to the roofline (spec §24)."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import polars as pl

from nsysflow.analysis.events.kernel_classes import unit_by_name
from nsysflow.analysis.events.operator_work import work_of
from nsysflow.analysis.events.operators import (
    arguments,
    dtype_in_words,
    of_operators,
    shapes_in_words,
)
from nsysflow.analysis.frames.columns import percent
from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.clocks import mean_clocks
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared
from nsysflow.base.peaks import MEMORY, PEAKS, PER_CYCLE, Unit

OPERATORS: Final = TableSchema(
    """One row per process, device, operator, shapes, dtype and work of a call. A kernel belongs to
    the innermost operator with shapes in which it was launched, or captured into a CUDA graph where
    the trace of the capture is known; communication is left out. `flops_per_s`, `intensity` and
    `roofline_pct` are of `least_flops`.""",
    [
        *shared("report process device"),
        Column("operator", pl.String(), "the operator, e.g. `aten::mm`"),
        Column("shapes", pl.String(), "the sizes of its tensors, in the order of its arguments"),
        Column("dtype", pl.String(), "their types, each once, joined by `+`"),
        Column("calls", pl.Int64(), "how many calls of the operator launched kernels"),
        *shared("kernels total_ns"),
        Column("share_pct", pl.Float64(), "the share of the GPU's kernel time"),
        Column(
            "flops",
            pl.Int64(),
            "the FLOPs of a call, as torch's FlopCounterMode counts them; empty for what it does "
            "not count",
        ),
        Column(
            "least_flops",
            pl.Int64(),
            "those that must be computed: without what a causal mask hides, and of grouped "
            "convolutions only each group's own",
        ),
        Column(
            "bytes",
            pl.Int64(),
            "what a call must read and write at least: each tensor once; empty where that is not "
            "known",
        ),
        Column("flops_per_s", pl.Float64(), "FLOPs over the kernels' time"),
        Column("bytes_per_s", pl.Float64(), "bytes over the kernels' time"),
        Column("intensity", pl.Float64(), "FLOPs per byte"),
        Column(
            "unit",
            pl.String(),
            "the arithmetic that its FLOPs are compared with: float32, tf32, bf16, fp16 or fp8",
        ),
        Column(
            "limit",
            pl.String(),
            "what bounds it at best: compute or memory; empty where the GPU's peak is not known",
        ),
        Column(
            "roofline_pct",
            pl.Float64(),
            "the time that the GPU needs at its peak or its bandwidth, whichever is longer, over "
            "the kernels' time; the peak is that at the mean clock, where it was sampled; above "
            "100 where tensors stay in its cache",
        ),
    ],
)

_UNITS: Final = {"c10::BFloat16": "bf16", "c10::Half": "fp16", "float": "float32"}
_FP8: Final = "c10::Float8"

_LARGEST: Final = (1 << 63) - 1

_WORK: Final = pl.Schema(
    {
        "shape": pl.UInt32(),
        "operator": pl.String(),
        "shapes": pl.String(),
        "dtype": pl.String(),
        "flops": pl.Int64(),
        "least_flops": pl.Int64(),
        "bytes": pl.Int64(),
        "written_unit": pl.String(),
    }
)
"""What a call with these arguments takes; `written_unit` is that of its tensors."""

_SAME_WORK: Final = [name for name in _WORK if name != "shape"]


def operator_table(view: View) -> pl.DataFrame:
    """The OPERATORS table, most time first."""
    if view.trace.operators.is_empty():
        return OPERATORS.to_frame()
    kernels = operator_kernels(view)
    pair = ["process", "device"]
    tf32_ns = pl.col("ns").filter(pl.col("unit") == "tf32").sum()
    by_shape = kernels.group_by(*pair, "shape").agg(
        pl.col("operator").n_unique().alias("calls"),
        pl.len().alias("kernels"),
        pl.col("ns").sum().alias("total_ns"),
        tf32_ns.alias("tf32_ns"),
    )
    work = works(view.trace.operator_shapes, by_shape["shape"].unique())
    sums = pl.col("calls", "kernels", "total_ns", "tf32_ns").sum().cast(pl.Int64)
    return (
        by_shape.join(work, on="shape")
        .group_by(*pair, *_SAME_WORK)
        .agg(sums)
        .join(gpu_rates(view), on="device", how="left")
        .with_columns(os_pid(pl.col("process")).alias("process"), _unit())
        .join(gpu_peaks(view), on=["device", "unit"], how="left")
        .with_columns(*_measures())
        .with_columns(
            percent(pl.max_horizontal("compute_ns", "memory_ns"), pl.col("per_call_ns"))
            .alias("roofline_pct")
        )
        .sort("total_ns", *pair, *_SAME_WORK, descending=[True] + [False] * 9)
    )  # fmt: skip


def operator_kernels(view: View) -> pl.DataFrame:
    """The kernels of operators: `process`, `device`, `ns`, `name`, `unit` (that its name states),
    `operator` and `shape` as in `schema.OPERATORS`."""
    computes = (pl.col("kind") == "kernel") & (pl.col("part") == "compute")
    ns = (pl.col("end_ns") - pl.col("start_ns")).alias("ns")
    kernels = view.ops.lazy().filter(computes)
    kernels = kernels.select("process", "correlation", "detail", "device", "name", ns)
    launched = of_operators(kernels.collect(), view.trace.operators).drop("correlation", "detail")
    names = launched.select(pl.col("name").unique())
    units = names.with_columns(unit_by_name(pl.col("name").cast(pl.String)).alias("unit"))
    return launched.join(units, on="name", how="left")


def works(shapes: pl.DataFrame, used: pl.Series) -> pl.DataFrame:
    """What a call takes, `_WORK`, of these rows of `schema.OPERATOR_SHAPES`."""
    rows = [(shape, *_described(shapes.row(shape))) for shape in used.sort()]
    return pl.DataFrame(rows, schema=_WORK, orient="row")


def _described(row: tuple[Any, ...]) -> Iterator[Any]:
    name, *written = row
    args = arguments(*written) or ()
    work = work_of(name, args)
    yield from (name, shapes_in_words(args), dtype_in_words(args))
    yield from (_whole(number) for number in (work.flops, work.least_flops, work.bytes))
    yield None if work.flops is None or not args else unit_of_type(args[0].type)


def _whole(number: int | None) -> int | None:
    """None for what does not fit 64 bits, which no real operator reaches."""
    return number if number is not None and number <= _LARGEST else None


def unit_of_type(type_: str) -> str | None:
    """The arithmetic of products of tensors of a type."""
    return "fp8" if type_.startswith(_FP8) else _UNITS.get(type_)


def _unit() -> pl.Expr:
    """Products of float32 tensors run in `tf32` if most of their time is of kernels named so."""
    tf32 = (pl.col("written_unit") == "float32") & (2 * pl.col("tf32_ns") > pl.col("total_ns"))
    return pl.when(tf32).then(pl.lit("tf32")).otherwise("written_unit").alias("unit")


def gpu_rates(view: View) -> pl.DataFrame:
    """`device`, `gpu` (its name), `memory_per_s` and `device_ns` (the time of all its kernels)."""
    devices = view.trace.devices.unique("device", keep="first")
    stated = pl.col("name").replace_strict(MEMORY, default=None, return_dtype=pl.Float64)
    ns = pl.col("end_ns") - pl.col("start_ns")
    kernels = view.ops.lazy().filter(pl.col("kind") == "kernel").group_by("device")
    return devices.select(
        "device",
        pl.col("name").alias("gpu"),
        pl.coalesce(pl.col("memory_bytes_per_s").cast(pl.Float64), stated).alias("memory_per_s"),
    ).join(kernels.agg(ns.sum().alias("device_ns")).collect(), on="device")


def gpu_peaks(view: View) -> pl.DataFrame:
    """`device`, `unit`, `peak_per_s`: at the GPU's mean clock, where that, its multiprocessors and
    what they do in a cycle are known; else the peak that its maker states."""
    stated, per_cycle = (_by_unit(rates, name) for rates, name in _RATES)
    devices = view.trace.devices.unique("device", keep="first")
    clocked = 1e6 * pl.col("sm_clock_mhz") * pl.col("sm_count") * pl.col("flops_per_cycle")
    clocked = pl.when(clocked > 0).then(clocked)
    return (
        devices.select("device", "sm_count", gpu="name")
        .join(mean_clocks(view), on="device", how="left")
        .join(stated, on="gpu")
        .join(per_cycle, on=["gpu", "unit"], how="left")
        .select("device", "unit", pl.coalesce(clocked, "stated_per_s").alias("peak_per_s"))
    )


_RATES: Final = ((PEAKS, "stated_per_s"), (PER_CYCLE, "flops_per_cycle"))


def _by_unit(rates: Mapping[str, Mapping[Unit, float]], name: str) -> pl.DataFrame:
    """`gpu`, `unit` and a rate of that name."""
    rows = [(gpu, unit, rate) for gpu, units in rates.items() for unit, rate in units.items()]
    schema = {"gpu": pl.String(), "unit": pl.String(), name: pl.Float64()}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _measures() -> tuple[pl.Expr, ...]:
    """What was reached, and `compute_ns` and `memory_ns`, what a call needs of each at best."""
    per_s = pl.when(pl.col("total_ns") > 0).then(1e9 * pl.col("calls") / pl.col("total_ns"))
    flops, moved = pl.col("least_flops"), pl.col("bytes")
    counted = flops.is_not_null()
    compute_ns = pl.when(counted).then(1e9 * flops / pl.col("peak_per_s")).otherwise(0.0)
    memory_ns = 1e9 * moved / pl.col("memory_per_s")
    both = compute_ns.is_not_null() & memory_ns.is_not_null()
    limit = pl.when(compute_ns > memory_ns).then(pl.lit("compute")).otherwise(pl.lit("memory"))
    return (
        percent(pl.col("total_ns"), pl.col("device_ns")).alias("share_pct"),
        (flops * per_s).alias("flops_per_s"),
        (moved * per_s).alias("bytes_per_s"),
        pl.when(moved > 0).then(flops / moved).alias("intensity"),
        pl.when(both).then(limit).alias("limit"),
        pl.when(both).then(compute_ns).alias("compute_ns"),
        pl.when(both).then(memory_ns).alias("memory_ns"),
        (pl.col("total_ns") / pl.col("calls")).alias("per_call_ns"),
    )


TABLES: Final = (
    Table(
        name="operators",
        schema=OPERATORS,
        make=operator_table,
        csv="with rows",
        json_key="operators",
        page_rows=4,
        full_rows=20,
        filled_by="record with torch.profiler's record_shapes=True, or nsysflow profile"
        " --collector kineto --shapes",
        shown=(
            "total_ns operator shapes roofline_pct limit flops_per_s bytes_per_s calls dtype"
            " share_pct device report"
        ),
    ),
)
