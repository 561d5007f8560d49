"""What a program was seen to do with products of matrices.

nsys records no sizes: our runtime looked at a few steps of the program (spec §12.18).

* `product-order`: of three matrices the two are multiplied first whose product is large.
* `zeros-in-products`: a factor of products is mostly zeros.
* `merged-adapter`: a low-rank adapter is merged into its weight at each call.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, TypeVar

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import in_words, kernel_finding
from nsysflow.analysis.findings.kernels import MATRIX_CLASSES
from nsysflow.analysis.findings.rules.module_kernels import (
    OF_WEIGHTS,
    SeenKernels,
    at_its_line,
    products_of_layer,
    seen_kernels,
)
from nsysflow.analysis.observed import MergedAdapter, OrderedProducts, SparseProducts
from nsysflow.base.units import number, percent

Products = TypeVar("Products", OrderedProducts, SparseProducts, MergedAdapter)

SEEN_PCT: Final = 2.0
"""Less of the kernel time is not worth a line."""

CHANGE_OF_ORDER: Final = (
    "q @ (k.transpose(-2, -1) @ v) instead of (q @ k.transpose(-2, -1)) @ v: the same but for"
    " rounding, as nothing stands between the products",
    "torch.einsum of three tensors: two calls, or install opt_einsum, and it chooses the order",
)

CHANGE_OF_RIGHT: Final = (
    "(a @ b) @ c instead of a @ (b @ c): the same but for rounding, as nothing stands between the"
    " products",
    CHANGE_OF_ORDER[1],
)


ZEROS_PCT: Final = 5.0
"""Less of the kernel time is not worth another form of the program."""

CHANGE_OF_ZEROS: Final = (
    "blocks on a diagonal, such as a batch of graphs: torch.bmm of the blocks, (blocks, n, n) by"
    " (blocks, n, features), without torch.block_diag",
    "edges of a graph: torch.zeros_like(x).index_add(0, to, x[origin]), without a matrix",
    "a matrix that stays the same: matrix.to_sparse_csr() once, then torch.sparse.mm; that is fast"
    " where about 19 of 20 numbers are zeros, or more",
)


CHANGE_OF_ADAPTER: Final = (
    "F.linear(x, weight) + scale * F.linear(F.linear(x, down), up) instead of F.linear(x, weight +"
    " scale * (up @ down)): the same but for rounding",
    "or use an adapter of peft, which is such a branch; merge it once training is over",
)

CHANGE_OF_FIXED_ADAPTER: Final = (
    "merge it once, before the loop: weight.data += scale * (up @ down); of peft:"
    " model.merge_and_unload()",
    "where adapters change from request to request, run them as a branch:"
    " F.linear(F.linear(x, down), up)",
)


def seen_product_order(subject: JudgedReport) -> Iterator[Finding]:
    """Products of three matrices in the costly order, with their part of the backward pass.

    Both passes take less by the share of the arithmetic that the other order spares.
    """
    for seen in seen_kernels(subject, OrderedProducts):
        module = seen.module
        if not 0 < module.otherwise < module.operations <= module.of_lines:
            continue
        products, times = _of_lines(seen), module.operations / module.otherwise
        rows = _spared(products, 1 - 1 / times, module.learning_share)
        if seen.share_pct(rows) < SEEN_PCT:
            continue
        a, b, c, d = module.sizes
        batch = f" in batches of {module.batch}" if module.batch > 1 else ""
        yield _finding(
            subject,
            seen,
            rows,
            products.own,
            rule="product-order",
            title="three matrices are multiplied in the costly order",
            change=CHANGE_OF_ORDER if module.left_first else CHANGE_OF_RIGHT,
            evidence=(
                f"{a} x {b} by {b} x {c} by {c} x {d}{batch}: {times:.3g} times the arithmetic of"
                " the other order",
                f"{module.name} computes {number(module.calls)} such products in {module.steps}"
                " steps, and nothing else reads the product between",
            ),
        )


def zeros_in_products(subject: JudgedReport) -> Iterator[Finding]:
    """Products with a factor that is mostly zeros, with their part of the backward pass: half of a
    product's, as such a factor has no gradient itself.

    Both passes take less by the share of zeros.
    """
    for seen in seen_kernels(subject, SparseProducts):
        module = seen.module
        if not 0 < module.of_zeros <= module.operations <= module.of_lines:
            continue
        products, share = _of_lines(seen), module.of_zeros / module.operations
        rows = _spared(products, share, OF_WEIGHTS * module.learning_share)
        if seen.share_pct(rows) < ZEROS_PCT:
            continue
        height, width = module.sizes
        zeros = percent(100 * share)
        yield _finding(
            subject,
            seen,
            rows,
            products.own,
            rule="zeros-in-products",
            title=f"{zeros} of a product's factor is zeros",
            change=CHANGE_OF_ZEROS,
            evidence=(
                f"a {height} x {width} factor has {zeros} zeros in each step (seen in"
                f" {module.steps} steps)",
                f"{module.name} computes {number(module.calls)} products with such a factor in"
                " these",
            ),
        )


def merged_adapter(subject: JudgedReport) -> Iterator[Finding]:
    """What merges low-rank adapters at each call: their products and the sums of the same lines;
    and, with gradients, the gradient of the whole weight in the backward pass."""
    for seen in seen_kernels(subject, MergedAdapter):
        module = seen.module
        if not 0 < module.operations <= module.of_lines <= module.of_operations:
            continue
        forward = _merging(seen)
        behind = _gradients_of_weights(seen)
        rows = pl.concat([forward.select(behind.columns), behind])
        rows = rows.filter(pl.col("gain_ns") > 0)
        if seen.share_pct(rows) < SEEN_PCT:
            continue
        height, inner, width = module.sizes
        now = 3 * module.operations + module.used if module.learning else module.operations
        branch = percent(100 * 3 * module.branch / now)
        yield _finding(
            subject,
            seen,
            rows,
            forward,
            rule="merged-adapter",
            title="a low-rank adapter is merged into its weight at each call",
            change=CHANGE_OF_ADAPTER if module.learning else CHANGE_OF_FIXED_ADAPTER,
            evidence=(
                f"{height} x {inner} by {inner} x {width} is added to a weight, for"
                f" {number(module.calls)} products (seen in {module.steps} steps)",
                "its gradients come from that of the whole weight, which is frozen: a branch takes"
                f" {branch} of the arithmetic"
                if module.learning
                else "gradients are off, and neither the adapter nor the weight changes",
            ),
        )


def _of_lines(seen: SeenKernels[Products]) -> SeenKernels[Products]:
    """The products that the lines launch, with the share of them that is meant; else products in
    the range of its calls."""
    share = seen.module.operations / seen.module.of_lines
    weight = seen.weight if seen.known is None else share
    return replace(seen, own=products_of_layer(seen), weight=weight)


def _spared(products: SeenKernels[Products], spared: float, learning: float) -> pl.DataFrame:
    """The kernels of products, of which this share is spared as `gain_ns`; in the backward pass
    times the share that has gradients."""
    behind = products.in_backward(spared * learning)
    behind = behind.filter(pl.col("class").is_in([*MATRIX_CLASSES]))
    return pl.concat([products.in_forward(spared), behind])


def _merging(seen: SeenKernels[MergedAdapter]) -> pl.DataFrame:
    """The kernels that compute adapters and, where their lines are known, add them to weights; all
    of their time is `gain_ns`."""
    products = _of_lines(seen)
    own = products.own.with_columns(pl.col("ns") * products.weight)
    if seen.known is not None:
        sums = seen.own.filter(pl.col("class") == "elementwise")
        own = pl.concat([own, sums.cast({"ns": pl.Float64})])
    gains = own.select("op", pl.col("ns").cast(pl.Int64).alias("gain_ns"))
    kept = seen.forward.filter(pl.col("op").is_in(own["op"].implode()))
    return kept.drop("gain_ns").join(gains, on="op")


def _gradients_of_weights(seen: SeenKernels[MergedAdapter]) -> pl.DataFrame:
    """The products of the backward pass, with what branches would spare of each as `gain_ns`.

    The gradient of the weight takes as much arithmetic as the product with it, those of the factors
    twice as much as the adapter; a branch takes twice of its own, and its forward pass besides.
    """
    module = seen.module
    spared = max(0, module.used + 2 * module.operations - 3 * module.branch)
    product = pl.col("class").is_in([*MATRIX_CLASSES])
    rows = seen.backward.filter(product)
    forward_ns = int(seen.forward.filter(product)["ns"].sum())
    spared_ns = module.learning_share * spared / module.of_operations * forward_ns
    share = min(1.0, spared_ns / max(1, int(rows["ns"].sum())))
    return rows.with_columns((pl.col("ns") * share).cast(pl.Int64).alias("gain_ns"))


def _finding(
    subject: JudgedReport,
    seen: SeenKernels[Products],
    rows: pl.DataFrame,
    own: pl.DataFrame,
    *,
    rule: str,
    title: str,
    change: tuple[str, ...],
    evidence: tuple[str, ...],
) -> Finding:
    """The finding about these kernels, with `gain_ns`; `own` are those of the forward pass."""
    known = seen.known is not None
    finding = kernel_finding(
        subject,
        rows,
        rule=rule,
        title=title,
        change=change,
        evidence=(*evidence, in_words(subject, own)) if known else evidence,
        at=own if known else None,
    )
    return at_its_line(subject, finding, seen, title)
