"""Tables of which a step uses few rows.

* `dense-embedding`: an embedding's gradient is dense: each step passes over its whole table.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import polars as pl

from nsysflow.analysis.events.operators import BYTES
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import in_words, kernel_finding, share_of_kernels
from nsysflow.analysis.tables.operators import gpu_rates
from nsysflow.base.units import duration, percent, size

DENSE_PCT: Final = 10.0
"""Less of the kernel time is no reason to change the optimizer."""

_FILL: Final = r"\bFillFunctor<([\w:]+)>"
_BACKWARD: Final = r"\b(?:sum_and_scatter|embedding_backward(?:_feature)?_kernel)\b"
_LOOK_UP: Final = r"\b(?:vectorized_gather_kernel|indexSelect\w+|EmbeddingBag_updateOutput\w+)"
_BAG: Final = r"\bEmbeddingBag_"
_UPDATE: Final = r"\bmulti_tensor_apply_kernel\b"
_ADD: Final = r"\bCUDAFunctor_add\b"

MOST_BETWEEN: Final = 16
"""Kernels from the fill to the one that writes the rows at most: PyTorch's sums of equal rows are
9 (2.11)."""

CHUNK: Final = 65_536
"""The elements that a block of multi_tensor_apply updates."""

BLOCKS: Final = (512, 1_024, 2_048, 4_096)
"""The elements that a block of an elementwise kernel may write: 128 threads (AMD: 256), each 4, 8
or 16, by PyTorch's version and the dtype."""

MOST_OF_PEAK: Final = 1.1
"""A fill is no faster than this share of the memory's peak: 98 % on an H200. Half of it is slower
than any fill of a large tensor, so that the peak tells how many elements a block writes."""

SHORT: Final = 0.1
"""The quantile of the lengths of launches that wait for no place in the GPU's queue."""

SPLIT_BYTES: Final = 2**30
"""A tensor too large for offsets of 32 bits is filled half by half, each of which has as many bytes
or more: kernels of one size, one after the other."""

TIED: Final = 2
"""A sum of two gradients of the table reads two of them and writes one: three times a fill's bytes,
so that it takes at least so many times as long. A table that is the output layer, too, has one."""

CHANGE: Final = (
    "nn.Embedding(..., sparse=True): a step then updates only the rows that it used",
    "optimizers that take it: Adagrad and SGD (the same result without momentum and weight decay),"
    " SparseAdam",
    "the table in an optimizer of its own: one sparse gradient switches foreach off for all"
    " parameters",
    "SparseAdam is lazy: rows without a gradient are not updated, and their moments do not decay,"
    " so results differ from Adam's",
    "or torchrec (FBGEMM): its backward pass updates the rows used, without a gradient",
)


def dense_embedding(subject: JudgedReport) -> Iterator[Finding]:
    """Fills of an embedding's gradient, and the optimizer's passes over its table, where look-ups
    take no longer than the fills.

    A look-up reads and writes its rows and a fill writes all: so a step uses at most half of the
    table, and less where rows are short, as those take longer. A sparse update reads back how many
    rows it has, so the host no longer launches ahead: what its launches take goes off the saving.
    With 5 % of 872 MB used, sparse=True took kernels from 7.09 to 4.08 ms a step, and the step from
    7.34 to 5.67 ms, or 6.48 ms in one optimizer (Adagrad); from fused Adam to SparseAdam, 6.14 to
    4.37 and 6.32 to 5.11 ms (an H200, 2026-11-28).
    """
    name = subject.kernels["name"].unique().cast(pl.String)
    if not (name.str.contains(_BACKWARD).any() and name.str.contains(_UPDATE).any()):
        return
    kernels = _flagged(subject)
    fills = _fills(subject, kernels)
    looked_up = pl.col("ns") * pl.when("bag").then(2).otherwise(1)
    look_up_ns = kernels.filter("look_up").select(looked_up.sum()).item()
    if not 0 < look_up_ns <= int(fills["ns"].sum()):
        return
    updates = _updates(kernels, fills)
    if updates.is_empty():
        return
    filled = kernels.filter(pl.col("row").is_in(fills["parts"].explode().implode()))
    filled = filled.with_columns(pl.col("ns").alias("gain_ns"))
    rows = pl.concat([filled, updates.drop("since")])
    share = share_of_kernels(subject, rows.with_columns(pl.col("gain_ns").alias("ns")))
    host_ns = _launching_ns(subject, updates)
    most_ns = subject.worst_ns(rows, "gain_ns") - host_ns
    if share < DENSE_PCT or most_ns <= 0:
        return
    finding = kernel_finding(
        subject,
        rows,
        rule="dense-embedding",
        title="an embedding's gradient is dense: its whole table is filled and updated"
        f"{' each step' if subject.of_steps else ''}, {percent(share)} of kernel time",
        change=CHANGE,
        evidence=(
            _of_largest(fills),
            f"filled with zeros: {in_words(subject, filled)}",
            f"the table's part of the optimizer: {duration(subject.worst_ns(updates, 'gain_ns'))}"
            f" of {in_words(subject, updates)}",
            f"taken off: {duration(host_ns)}, in which the host launches these. A sparse update"
            " waits for the GPU (not with SGD), so it is not launched ahead",
            "not counted: the kernels of a sparse update, which read and write the rows used",
        ),
    )
    yield replace(finding, at_most_ns=most_ns)


def _launching_ns(subject: JudgedReport, updates: pl.DataFrame) -> int:
    """What the host takes per step to launch these kernels where it waits for nothing: the time
    between its calls, and for each call as long as short ones take."""
    launches = subject.view.ops[["op", "call", "launch_start_ns", "launch_end_ns"]]
    calls = updates.join(launches, on="op").unique("call", keep="first")
    calls = calls.drop_nulls("launch_start_ns").sort("lane", "launch_start_ns")
    between = pl.col("launch_start_ns") - pl.col("launch_end_ns").shift(1).over("lane", "since")
    length = (pl.col("launch_end_ns") - pl.col("launch_start_ns")).quantile(SHORT)
    host_ns = (between.clip(0).fill_null(0) + length).cast(pl.Int64).alias("host_ns")
    return subject.worst_ns(calls.with_columns(host_ns), "host_ns")


def _of_largest(fills: pl.DataFrame) -> str:
    """The largest table, and the rows of it that are used."""
    largest = fills.sort("bytes", "used").row(-1, named=True)
    used = f", of which a step uses at most {largest['used']:,} rows" if largest["used"] else ""
    return f"a gradient of about {size(largest['bytes'])}{used}"


def _flagged(subject: JudgedReport) -> pl.DataFrame:
    """The kernels in order: `row`, `blocks`, what each is, `alike` (how many of its name and size
    are in a row up to it), and `between`, which is the same from one look-up or update to the
    next."""
    names = subject.kernels[["name"]].unique()
    patterns = {
        "fill": _FILL,
        "writes": _BACKWARD,
        "look_up": _LOOK_UP,
        "bag": _BAG,
        "optimizes": _UPDATE,
        "add": _ADD,
    }
    text = pl.col("name").cast(pl.String)
    flags = [text.str.contains(pattern).alias(flag) for flag, pattern in patterns.items()]
    kernels = subject.kernels.join(
        names.with_columns(flags), on="name", how="left", maintain_order="left"
    )
    blocks = subject.grids["grid_x"].gather(kernels["detail"]).cast(pl.Int64).alias("blocks")
    kernels = kernels.with_columns(blocks).with_row_index("row")
    others = (pl.col(name).ne_missing(pl.col(name).shift(1)) for name in ("lane", "name", "blocks"))
    row = pl.col("row").cast(pl.Int64)
    begun = pl.when(pl.any_horizontal(*others) | (row == 0)).then(row).forward_fill()
    return kernels.with_columns(
        (row - begun + 1).alias("alike"),
        (pl.col("look_up") | pl.col("optimizes")).cum_sum().alias("between"),
    )


def _fills(subject: JudgedReport, kernels: pl.DataFrame) -> pl.DataFrame:
    """The fills of embeddings' gradients that are added to no other gradient: `row`, `parts` (the
    rows of all kernels of a fill, of which `row` is the last), `lane`, `ns`, `elements`, `bytes`,
    and `used`, the rows that are written into it at most."""
    fill = pl.when("fill").then("row").forward_fill().over("lane")
    writes = (
        kernels.with_columns(fill.alias("filled"))
        .filter("writes", pl.col("row") - pl.col("filled") <= MOST_BETWEEN)
        .unique("filled", keep="last", maintain_order=True)
    )
    sums = kernels.filter("add").select("lane", "between", "row", sum_ns="ns")
    fills = writes.select(
        "lane", "between", "filled", written="row", used=_rows_written()
    ).with_columns(kernels[["name", "device", "ns", "blocks", "alike"]][writes["filled"]])
    summed = (
        fills.join(sums, on=["lane", "between"])
        .filter(pl.col("row") > pl.col("written"), pl.col("sum_ns") >= TIED * pl.col("ns"))
        .select("filled")
    )
    rates = dict(gpu_rates(subject.view)[["device", "memory_per_s"]].drop_nulls().rows())
    kept = fills.join(summed, on="filled", how="anti", maintain_order="left")
    elements = [_elements(row, rates.get(row["device"])) for row in kept.iter_rows(named=True)]
    counts = pl.DataFrame(elements, schema={"elements": pl.Int64, "bytes": pl.Int64}, orient="row")
    parts = pl.when(pl.col("bytes") >= SPLIT_BYTES).then("alike").otherwise(1)
    rows = pl.int_ranges(pl.col("filled") - parts + 1, pl.col("filled") + 1).alias("parts")
    return kept.hstack(counts).select(
        *("lane", "used", pl.col("filled").alias("row"), rows),
        *(pl.col(name) * parts for name in ("ns", "elements", "bytes")),
    )


def _rows_written() -> pl.Expr:
    """sum_and_scatter has a block for each row that it may write, or more (of rows over 1,024)."""
    scatters = pl.col("name").cast(pl.String).str.contains("sum_and_scatter", literal=True)
    return pl.when(scatters).then("blocks")


def _elements(fill: dict[str, Any], memory_per_s: float | None) -> tuple[int, int]:
    """The elements that a fill writes, and their bytes: as many in a block as the memory takes in
    that time; the fewest where that is not known. 0 without a grid."""
    found = re.search(_FILL, str(fill["name"]))
    each = BYTES.get(found[1], 4) if found else 4
    most = MOST_OF_PEAK * (memory_per_s or 0) * fill["ns"] / 1e9
    blocks = fill["blocks"] or 0
    a_block = max((one for one in BLOCKS if blocks * one * each <= most), default=BLOCKS[0])
    return blocks * a_block, blocks * a_block * each


def _updates(kernels: pl.DataFrame, fills: pl.DataFrame) -> pl.DataFrame:
    """The optimizer's kernels that pass over the tables filled before, with `gain_ns`, the tables'
    share of a pass, and `since`, which numbers an optimizer's steps on a stream. A pass is a run of
    kernels of one name; one with fewer elements than the tables is of other parameters."""
    chunks = (pl.col("elements") // CHUNK).alias("chunks")
    rows = kernels.join(fills.select("row", chunks), on="row", how="left", maintain_order="left")
    rows = rows.with_columns(pl.col("optimizes").cum_sum().over("lane").alias("updates"))
    # tables that are filled between two updates are updated together
    since = pl.when(pl.col("chunks").is_not_null()).then("updates").forward_fill().over("lane")
    rows = rows.with_columns(since.alias("since"))
    rows = rows.with_columns(pl.col("chunks").sum().over("lane", "since").alias("tables"))
    passes = rows.filter("optimizes", pl.col("since").is_not_null())
    passes = passes.with_columns(pl.struct("lane", "since", "name").rle_id().alias("pass"))
    share = pl.col("tables") / pl.col("blocks").sum().over("pass")
    gain = (pl.col("ns") * share).round().cast(pl.Int64).alias("gain_ns")
    return passes.filter(share <= 1, pl.col("tables") > 0).select(*kernels.columns, "since", gain)
