"""What attention and matrix products take of the steps of a serving engine, how that grows, and how
near they come to the roofline (spec §23.9 to §23.12)."""

import re
from collections.abc import Mapping
from math import prod
from typing import Final

import polars as pl

from nsysflow.analysis.engine_names import KIND
from nsysflow.analysis.events.kernel_classes import unit_by_name
from nsysflow.analysis.events.operators import BYTES, Arguments, arguments, of_operators
from nsysflow.analysis.frames.columns import median_ns, percent
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.operators import gpu_peaks, gpu_rates, unit_of_type, works
from nsysflow.analysis.tables.serving import WORK_CLASSES, kernels_of_steps, serving_steps
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

SERVING_WORK: Final = TableSchema(
    """One row per process, device, kind of step of a serving engine and class of kernels: attention
    and matrix products. FLOPs, bytes and the roofline are of the kernels whose operator says what
    they compute; of attention over a cache they follow from the step's tokens and context, as if
    each layer looked at all of it.""",
    [
        *shared("report process device"),
        Column("kind", KIND, "what the steps do: prefill, mixed or decode"),
        Column("class", pl.Enum(WORK_CLASSES), "attention or matmul"),
        Column("steps", pl.Int64(), "how many steps"),
        Column("total_ns", pl.Int64(), "how long its kernels run in these steps"),
        Column("share_pct", pl.Float64(), "the same as a share of the time of these steps"),
        Column("median_ns", pl.Int64(), "how long its kernels run in the median step"),
        Column(
            "ns_per_token",
            pl.Float64(),
            "by how much that grows with each further token: of attention a token of context, of "
            "matmul a token that is computed; empty if less than half of its variance follows them",
        ),
        Column(
            "known_pct", pl.Float64(), "the share of its kernels' time of which the work is known"
        ),
        Column("flops_per_s", pl.Float64(), "FLOPs of these kernels over their time"),
        Column("bytes_per_s", pl.Float64(), "bytes that they must move over their time"),
        Column(
            "limit",
            pl.String(),
            "what bounds them at best: compute or memory; empty where the GPU's peak is not known",
        ),
        Column(
            "roofline_pct",
            pl.Float64(),
            "the time that the GPU needs at its peak or its bandwidth over the kernels' time",
        ),
    ],
)

_PAGED: Final = pl.Schema(
    {
        "shape": pl.UInt32(),
        "pair_flops": pl.Float64(),
        "context_bytes": pl.Float64(),
        "query_bytes": pl.Float64(),
        "paged_unit": pl.String(),
    }
)
"""What attention over a cache of keys and values takes, of the shapes that are such an operator's.
Lengths are the step's: a pair is of a query and a key, `context_bytes` are the keys and values of a
token that it looks at, `query_bytes` its queries and its result, all tokens together."""

_KEY: Final = ["range", "device_no", "class"]


def serving_work(view: View) -> pl.DataFrame:
    """The SERVING_WORK table."""
    steps = serving_steps(view).drop_nulls("kind")
    if steps.is_empty():
        return SERVING_WORK.to_frame()
    of_class = [
        steps.select(
            *("process", "device", "kind", "range", "device_no", "time_ns"),
            pl.lit(name).cast(SERVING_WORK["class"]).alias("class"),
            pl.col(f"{name}_ns").alias("ns"),
            pl.col(tokens).alias("grows_with"),
        )
        for name, tokens in zip(WORK_CLASSES, ("context_tokens", "tokens"), strict=True)
    ]
    rows = pl.concat(of_class).join(_known_work(view, steps), on=_KEY, how="left")
    known = ("known_ns", "flops", "bytes", "compute_ns", "memory_ns", "best_ns")
    key = ["process", "device", "kind", "class"]
    summed = rows.group_by(key).agg(
        pl.len().cast(pl.Int64).alias("steps"),
        pl.col("ns").sum().alias("total_ns"),
        pl.col("time_ns").sum(),
        median_ns(pl.col("ns")).alias("median_ns"),
        _growth().alias("ns_per_token"),
        *(pl.col(name).sum() for name in known),
        (pl.col("known_ns").count() > 0).alias("known"),
        (pl.col("known_ns").count() == pl.col("best_ns").count()).alias("compared"),
    )
    return summed.with_columns(*_measures()).sort(key)


def _measures() -> tuple[pl.Expr, ...]:
    """Shares and rates of the sums."""
    compared = pl.col("known") & pl.col("compared")
    at_compute = pl.col("compute_ns") > pl.col("memory_ns")
    limit = pl.when(at_compute).then(pl.lit("compute")).otherwise(pl.lit("memory"))
    per_s = (
        pl.when("known").then(1e9 * pl.col(name) / pl.col("known_ns")).alias(f"{name}_per_s")
        for name in ("flops", "bytes")
    )
    return (
        percent(pl.col("total_ns"), pl.col("time_ns")).alias("share_pct"),
        percent(pl.col("known_ns"), pl.col("total_ns")).alias("known_pct"),
        *per_s,
        pl.when(compared).then(limit).alias("limit"),
        pl.when(compared)
        .then(percent(pl.col("best_ns"), pl.col("known_ns")))
        .alias("roofline_pct"),
    )


_FEWEST: Final = 3
"""A line goes through any two steps."""


def _growth() -> pl.Expr:
    """The slope of the least-squares line of a step's time over its tokens; null where that line
    explains less than half of the variance, and for fewer than three steps."""
    known = pl.col("grows_with").is_not_null()
    # sums of small whole numbers are exact
    x, y = (
        (column - column.min()).cast(pl.Float64)
        for column in (pl.col(name).filter(known) for name in ("grows_with", "ns"))
    )
    count = known.sum()
    xx, yy, xy = (count * (a * b).sum() - a.sum() * b.sum() for a, b in ((x, x), (y, y), (x, y)))
    fits = (count >= _FEWEST) & (xx > 0) & (2 * xy * xy >= xx * yy)
    return pl.when(fits).then(xy / xx)


def _known_work(view: View, steps: pl.DataFrame) -> pl.DataFrame:
    """Per `_KEY` of a step, of the kernels whose work is known: `known_ns`, their time; `flops` and
    `bytes`; `compute_ns`, `memory_ns` and `best_ns`, what the GPU needs for each and for both."""
    calls = _calls(view)
    shapes, used = view.trace.operator_shapes, calls["shape"].unique()
    numbers = steps.select("range", "device_no", "device", "context_tokens", "query_key_pairs")
    both = pl.col("flops").is_not_null() & pl.col("bytes").is_not_null()
    work = (
        calls.join(numbers, on=["range", "device_no"])
        .join(works(shapes, used), on="shape")
        .join(_paged(shapes, used), on="shape", how="left")
        .with_columns(*_of_step())
        .filter(both & (pl.col("ns") > 0))
        .join(gpu_rates(view), on="device", how="left")
        .join(gpu_peaks(view), on=["device", "unit"], how="left")
        .with_columns(
            (1e9 * pl.col("flops") / pl.col("peak_per_s")).alias("compute_ns"),
            (1e9 * pl.col("bytes") / pl.col("memory_per_s")).alias("memory_ns"),
        )
    )
    best = pl.max_horizontal("compute_ns", "memory_ns")
    compared = pl.col("compute_ns").is_not_null() & pl.col("memory_ns").is_not_null()
    count = pl.col("calls")
    whole = pl.col("best_ns").null_count() == 0
    return (
        work.with_columns(pl.when(compared).then(best).alias("best_ns"))
        .group_by(_KEY)
        .agg(
            pl.col("ns").sum().alias("known_ns"),
            *((pl.col(name) * count).sum() for name in ("flops", "bytes")),
            *((pl.col(name) * count).sum() for name in ("compute_ns", "memory_ns")),
            pl.when(whole).then((pl.col("best_ns") * count).sum()).alias("best_ns"),
        )
        .with_columns(pl.col("class").cast(SERVING_WORK["class"]))
    )


def _calls(view: View) -> pl.DataFrame:
    """Per `_KEY` and `shape` how many `calls` of operators with it launched kernels of the class,
    the kernels' `ns`, and the part of those whose name states tf32."""
    kernels = kernels_of_steps(view)
    names = kernels.select(pl.col("name").unique())
    units = names.with_columns(unit_by_name(pl.col("name").cast(pl.String)).alias("stated"))
    return (
        of_operators(kernels.join(units, on="name"), view.trace.operators)
        .group_by(*_KEY, "shape")
        .agg(
            pl.col("operator").n_unique().alias("calls"),
            pl.col("ns").sum(),
            pl.col("ns").filter(pl.col("stated") == "tf32").sum().alias("tf32_ns"),
        )
    )


def _paged(shapes: pl.DataFrame, used: pl.Series) -> pl.DataFrame:
    """`_PAGED` of these rows of `schema.OPERATOR_SHAPES`."""
    rows = []
    for shape in used.sort():
        name, *written = shapes.row(shape)
        work = _paged_attention(name, arguments(*written) or ())
        if work is not None:
            rows.append({"shape": shape, **work})
    return pl.DataFrame(rows, schema=_PAGED)


_FIRST_ARGUMENT: Final[Mapping[str, int]] = {
    "vllm::unified_attention": 0,
    "vllm::unified_attention_with_output": 0,
    "_vllm_fa2_C::varlen_fwd": 0,
    "_vllm_fa3_C::fwd": 0,
    "sgl_kernel::fwd": 0,
    "sglang::unified_attention_with_output": 0,
    "aiter::mha_batch_prefill": 0,
    "sglang_profiler::attention_paged_attention_ragged": 2,
}
"""The first of the three arguments queries, keys and values, whose last two sizes are heads and the
size of a head. The last operator has a number at the end of its name."""

_NUMBER: Final = re.compile(r"_[0-9]+$")


def _paged_attention(name: str, args: Arguments) -> dict[str, float | str | None] | None:
    """A row of `_PAGED` without its shape; None for other operators than an engine's attention, and
    where a size is missing."""
    first = _FIRST_ARGUMENT.get(name, _FIRST_ARGUMENT.get(_NUMBER.sub("", name)))
    if first is None or len(args) < first + 3:
        return None
    query, key, value = args[first : first + 3]
    sides = [arg.dims[-2:] for arg in (query, key, value) if arg.dims and len(arg.dims) > 2]
    if len(sides) < 3 or query.bytes is None or key.type not in BYTES or value.type not in BYTES:
        return None
    (heads, width), (kept, _), (_, value_width) = sides
    tokens = prod(query.dims or ()) // max(1, heads * width)
    return {
        "pair_flops": float(2 * heads * (width + value_width)),
        "context_bytes": float(kept * (width * BYTES[key.type] + value_width * BYTES[value.type])),
        "query_bytes": float(tokens * heads * (width + value_width) * BYTES[query.type]),
        "paged_unit": unit_of_type(query.type),
    }


def _of_step() -> tuple[pl.Expr, ...]:
    """What a call takes: as its shapes say, else by the tokens of its step; and its arithmetic."""
    tf32 = (pl.col("written_unit") == "float32") & (2 * pl.col("tf32_ns") > pl.col("ns"))
    unit = pl.when(tf32).then(pl.lit("tf32")).otherwise(pl.coalesce("written_unit", "paged_unit"))
    pairs = pl.col("pair_flops") * pl.col("query_key_pairs")
    moved = pl.col("context_bytes") * pl.col("context_tokens") + pl.col("query_bytes")
    flops = pl.coalesce(pl.col("least_flops").cast(pl.Float64), pairs)
    bytes_ = pl.when(pl.col("least_flops").is_not_null()).then("bytes").cast(pl.Float64)
    return (
        unit.alias("unit"),
        flops.alias("flops"),
        pl.coalesce(bytes_, moved).alias("bytes"),
    )


TABLES: Final = (
    Table(
        name="serving_work",
        schema=SERVING_WORK,
        make=serving_work,
        csv="with rows",
        json_key="serving_work",
        page_rows=8,
        full_rows=30,
        filled_by="record an engine that names its steps, such as vLLM or SGLang, or transformers",
        shown=(
            "report process device kind class steps total_ns share_pct median_ns ns_per_token "
            "known_pct flops_per_s bytes_per_s limit roofline_pct"
        ),
    ),
)
