"""Products that are larger than they need be.

* `summed-product`: a product of broadcast tensors is written, and then summed up.
* `product-order`: of three matrices the two are multiplied first whose product is large.
* `unread-product`: of a large product only a few rows are read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.events.operators import Dims, arguments
from nsysflow.analysis.findings.backward import is_backward
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import (
    LAUNCHES_TOO,
    in_words,
    kernel_finding,
    kernels_by_pass,
    share_of_kernels,
    trains,
)
from nsysflow.analysis.findings.rules.extra_kernels import kernels_to_drop
from nsysflow.analysis.findings.rules.seen_products import CHANGE_OF_ORDER, seen_product_order
from nsysflow.analysis.frames.columns import matching
from nsysflow.base.units import duration, flops, percent

PRODUCT: Final = r"(?s)\belementwise_kernel<.*\bBinaryFunctor<.*\bMulFunctor<"
"""PyTorch's product of two tensors that are not contiguous in the same order, as broadcast ones
are."""

SUM: Final = r"(?s)\breduce_kernel<.*\b(?:sum_functor|MeanOps)<"
"""PyTorch's sums and means."""

LEAST_NS: Final = 20_000
"""Shorter products are of small tensors, such as a weight for each row."""

LONGER: Final = 1.5
"""A product that takes so many times as long as its sum writes more than it reads: with as many
numbers in as out, both take about as long."""

SUMMED_PCT: Final = 10.0
"""Less of the kernel time is not worth another form of the program."""

CHANGE: Final = (
    "torch.einsum or torch.bmm: a matrix product never writes the large tensor between",
    "torch.compile the function: it sums what it multiplies, without writing it",
)

CHANGE_OF_BAGS: Final = (
    "F.embedding_bag(ids, weight, mode='sum', padding_idx=0): it reads rows and writes only sums",
    "with a weight for each row: its per_sample_weights",
    "of many tables: one batched embedding for all, such as torchrec's",
)
"""For rows of a table that are multiplied and summed up, such as those of a padded list of ids. A
ranker with eight such features took 10.9 ms, and 3.7 with embedding_bag (H200, 2026-11-29)."""


def summed_product(subject: JudgedReport) -> Iterator[Finding]:
    """Products right before a sum, on one stream, that write more than they read; with that sum,
    and with what fetches rows of a table for them.

    A triangle update of 192 x 192 pairs took 21.4 ms a step as products and sums, and 10.8 ms by
    einsum (H200, 2026-11-29).
    """
    kernels = subject.kernels
    product, total = matching(kernels["name"], PRODUCT), matching(kernels["name"], SUM)
    if not product.any() or not total.any():
        return
    sum_ns = pl.when(pl.lit(total)).then("ns").alias("sum_ns")
    behind_ns = pl.col("sum_ns").shift(-1).over("lane")
    large = pl.lit(product) & (pl.col("ns") >= LEAST_NS) & (pl.col("ns") >= LONGER * behind_ns)
    flags = kernels.with_columns(sum_ns).with_columns(large.fill_null(value=False).alias("large"))
    behind, before = (pl.col("large").shift(by, fill_value=False).over("lane") for by in (-1, 1))
    fetched = flags.select((pl.col("class") == "embedding") & behind).to_series()
    summed = flags.select(pl.col("large") | before).to_series()
    rows = kernels_to_drop(subject, summed | fetched, SUMMED_PCT)
    if rows.is_empty():
        return
    of_bags = 2 * int(fetched.sum()) >= int(flags["large"].sum())
    yield kernel_finding(
        subject,
        rows,
        rule="summed-product",
        title="products are written, then summed up:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE_OF_BAGS if of_bags else CHANGE,
        evidence=(in_words(subject, rows), LAUNCHES_TOO),
    )


BATCHED: Final = "aten::bmm"
"""Products of batches, as torch.matmul computes those of heads. Others may end with an activation,
and an MLP has such sizes, too."""

BATCH: Final = ("matrices", "rows", "columns")
"""The sizes of a batch of matrices."""

CHEAPER: Final = 4
"""The other order takes at most one of so many operations: attention over 2,048 tokens with heads
of 64 takes 32 times as many as it need."""

ORDER_PCT: Final = 10.0
"""Less of the kernel time is not worth another form of the program."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Products of a batch of matrices, by the sizes of both factors."""

    left: Dims
    right: Dims

    @property
    def result(self) -> Dims:
        """The sizes of the products."""
        return (*self.left[:2], self.right[2])

    @property
    def turned(self) -> Dims:
        """The sizes of the products when transposed."""
        return (self.left[0], self.right[2], self.left[1])

    @property
    def in_words(self) -> str:
        """`64x2048x64 by 64x64x2048 makes 64x2048x2048`."""
        left, right, result = (
            "x".join(map(str, dims)) for dims in (self.left, self.right, self.result)
        )
        return f"{left} by {right} makes {result}"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two products of which the second multiplies the result of the first one.

    Attributes:
        first: the first one's operator, a row of the trace's shapes.
        second: the second one's.
        operations: how many floating-point operations both take.
        otherwise: how many in the other order.
    """

    first: int
    second: int
    operations: int
    otherwise: int


def product_order(subject: JudgedReport) -> Iterator[Finding]:
    """Three matrices multiplied in the costly order, as recorded sizes tell, or what our runtime
    saw: reports of nsys have no sizes."""
    yield from [*_by_sizes(subject)] or seen_product_order(subject)


def _by_sizes(subject: JudgedReport) -> Iterator[Finding]:
    """Batched products right behind each other, the second of which multiplies the result of the
    first one, where the other order takes far less; with what has such a result in their backward
    passes.

    Attention without a softmax took 20.2 ms a step in this order, and 15.3 in the other one (H200,
    2026-11-29).
    """
    sizes = _sizes(subject)
    if not sizes:
        return
    neighbours = _neighbours(subject)
    kinds = neighbours.select("first", "shape").unique().sort("first", "shape").rows()
    costly = [pair for kind in kinds for pair in _costly(sizes, *kind)]
    if not costly:
        return
    is_one = ((pl.col("first") == one.first) & (pl.col("shape") == one.second) for one in costly)
    found = neighbours.filter(pl.any_horizontal(is_one))
    results = [sizes[one.first] for one in costly]
    large = {dims for of in results for dims in (of.result, of.turned)}
    gradients = [row for row, of in sizes.items() if {of.left, of.right, of.result} & large]
    backward = is_backward(subject.view, subject.kernels)
    which = subject.kernels.select(
        pl.int_range(pl.len()).is_in(pl.concat([found["row"], found["first_row"]]).implode())
        | (pl.lit(backward) & pl.col("shape").is_in(gradients).fill_null(value=False))
    ).to_series()
    rows = kernels_to_drop(subject, which, ORDER_PCT)
    if rows.is_empty():
        return
    most = max(costly, key=lambda one: one.operations)
    yield kernel_finding(
        subject,
        rows,
        rule="product-order",
        title="three matrices are multiplied in the costly order:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE_OF_ORDER,
        evidence=(
            f"{sizes[most.first].in_words}, which the next product reads:"
            f" {flops(most.operations)}, in the other order {flops(most.otherwise)}",
            in_words(subject, rows),
        ),
    )


def _sizes(subject: JudgedReport) -> dict[int, Batch]:
    """The batched products by operator, a row of the trace's shapes."""
    shapes = subject.timeline.trace.operator_shapes
    found = {}
    for row in subject.kernels["shape"].drop_nulls().unique().sort():
        name, *written = shapes.row(row)
        args = arguments(*written) if name == BATCHED else None
        factors = [arg.dims for arg in args or () if arg.dims and len(arg.dims) == len(BATCH)]
        if len(factors) == 2:
            found[row] = Batch(left=factors[0], right=factors[1])
    return found


def _neighbours(subject: JudgedReport) -> pl.DataFrame:
    """`row` and `shape` of the kernels outside of backward passes, with those of the kernel before
    each, `first_row` and `first`. Copies may stand between the two."""
    moves = (pl.col("layout") | pl.col("cast")).fill_null(value=False)
    backward = pl.lit(is_backward(subject.view, subject.kernels))
    rows = subject.kernels.select(
        "lane", "shape", pl.int_range(pl.len()).alias("row"), moves.alias("moves"), backward
    ).filter(~pl.col("moves"))
    before = (pl.col(of).shift(1).over("lane") for of in ("row", "shape"))
    rows = rows.with_columns(first_row=next(before), first=next(before))
    return rows.filter(~pl.col("backward")).drop_nulls()


def _costly(sizes: Mapping[int, Batch], first: int, second: int) -> Iterator[Pair]:
    """The pair, if the second multiplies what the first makes, and the other order takes less."""
    if first not in sizes or second not in sizes:
        return
    one, two = sizes[first], sizes[second]
    batch, lines, inner = one.left
    columns = one.right[2]
    if one.result not in (two.left, two.right):
        return
    last = two.right[2] if two.left == one.result else two.left[1]
    pair = Pair(
        first=first,
        second=second,
        operations=2 * batch * lines * columns * (inner + last),
        otherwise=2 * batch * inner * last * (lines + columns),
    )
    if pair.operations >= CHEAPER * pair.otherwise:
        yield pair


UNREAD_PCT: Final = 5.0
"""Less of the kernel time is not worth a finding."""

PASSING: Final = ("elementwise", "copy/cast", "triton")
"""Classes of kernels that pass over a result: casts, scales, activations."""

PASSES_PCT: Final = 5.0
"""They take this share of the product's time or more: a cast of logits took 30 %."""

LEAST_PASS_NS: Final = 50_000
"""A shorter one may have written to the GPU's cache, where others read faster than memory."""

READ_PCT: Final = 20.0
"""Who reads all that a cast wrote takes this share of its time or more: it read 32 bits of each
number, and wrote at least 8. What takes half of that has read some of it."""

CHANGE_OF_UNREAD: Final = (
    "take the rows that you use before the product, not after it: model.lm_head(hidden[:, -1])",
    "of Hugging Face models: model(..., logits_to_keep=1), as generate() does",
)


def unread_product(subject: JudgedReport) -> Iterator[Finding]:
    """The last product of each step and what passes over its result, where all that follows is too
    short to have read most of that: until the next product, if a lookup comes before it (of what
    the next step begins with) or it is as short.

    Questions of 8 x 1,024 tokens took 31.4 ms a step with logits of all positions, and 22.7 with
    those of the last ones (H200, 2026-11-30).
    """
    if not subject.of_steps or trains(subject):
        return
    ops = _behind_products(subject)
    track = ["process", "device"]
    products = ops.group_by(*track, "product", maintain_order=True).agg(
        pl.col("step").first(),
        pl.col("ns").first().alias("product_ns"),
        pl.col("ns").filter("passes").last().alias("pass_ns"),
        pl.col("ns").filter("rest").sum().alias("rest_ns"),
        pl.col("rest").any(),
        (pl.col("rest") & (pl.col("class") == "embedding")).any().alias("looks_up"),
    )
    next_ns = pl.col("product_ns").shift(-1).over(track)
    read_ns = READ_PCT / 100 * pl.col("pass_ns")
    unread = (
        (pl.col("pass_ns") >= LEAST_PASS_NS)
        & pl.col("rest")
        & (pl.col("rest_ns") <= read_ns / 2)
        & (pl.col("looks_up") | (next_ns <= read_ns))
    )
    ends = pl.col("step") != pl.col("step").shift(-1).over(track)
    last = products.with_columns(unread.alias("unread")).filter(ends)
    unread_ones = last.filter("unread")
    written = ops.filter(~pl.col("rest")).join(unread_ones, on=[*track, "product"], how="semi")
    rows = kernels_to_drop(subject, pl.col("op").is_in(written["op"].implode()), UNREAD_PCT)
    if rows.is_empty() or 2 * len(unread_ones) <= len(last):
        return
    passes, rest = (
        round(unread_ones[of].sum() / len(unread_ones)) for of in ("pass_ns", "rest_ns")
    )
    yield kernel_finding(
        subject,
        rows,
        rule="unread-product",
        title="most of a product's result is never read:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE_OF_UNREAD,
        evidence=(
            in_words(subject, rows),
            f"the last kernel that passes over its result takes {duration(passes)}; all that"
            f" follows, until the next product, takes {duration(rest)}",
        ),
    )


def _behind_products(subject: JudgedReport) -> pl.DataFrame:
    """Kernels and copies in the order of their start, from the first product of a GPU on: `op`,
    `process`, `device`, `ns`, `step`, `class` (null of copies), `product` (numbers a product and
    what follows it), `passes` (whether it is right behind the product, and long) and `rest` (behind
    these)."""
    track = ["process", "device"]
    length = (pl.col("end_ns") - pl.col("start_ns")).alias("ns")
    kernels = kernels_by_pass(subject)["op", "class", "step"]
    ops = subject.view.ops.select("op", *track, "start_ns", length).sort(*track, "start_ns")
    ops = ops.join(kernels, on="op", how="left", maintain_order="left")
    is_product = (pl.col("class") == "matmul").fill_null(value=False)
    ops = ops.with_columns(
        is_product.alias("is_product"), is_product.cum_sum().over(track).alias("product")
    ).filter(pl.col("product") > 0)
    of_product = [*track, "product"]
    long = pl.col("ns") >= PASSES_PCT / 100 * pl.col("ns").first().over(of_product)
    passing = pl.col("class").is_in(PASSING).fill_null(value=False) & long
    ops = ops.with_columns((passing | pl.col("is_product")).alias("of_it"))
    ops = ops.with_columns(pl.col("of_it").cast(pl.Int8).cum_min().over(of_product) == 1)
    passes = pl.col("of_it") & ~pl.col("is_product")
    return ops.with_columns(passes.alias("passes"), (~pl.col("of_it")).alias("rest"))
