"""Losses that pass over all logits several times.

* `unfused-loss`: a cross-entropy over a large vocabulary, in kernels of its own.
"""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import in_words, kernel_finding, share_of_kernels
from nsysflow.analysis.findings.kernels import is_glue
from nsysflow.analysis.frames.columns import matching
from nsysflow.base.units import duration, percent

_LARGE: Final = r"cunn_SoftMaxForward\w*<.*\bLogSoftMaxForward"
"""PyTorch's log-softmax of rows that are too long for a warp: of more than 1,024 numbers."""

LOSS_PCT: Final = 5.0
"""Less of the kernel time is not worth another loss."""

CHANGE: Final = (
    "a fused cross-entropy with the output layer in it: Liger's, or cut-cross-entropy",
    "torch.compile the output layer and the loss together",
    "no logits for tokens that the loss ignores: padding, prompts",
)
CHANGE_OF_PICKED: Final = (
    "logits only for tokens that count: cut prompts and padding off before the output layer",
    "a fused loss with the output layer in it: Liger's for GRPO, DPO and others",
    "torch.compile the output layer and the loss together",
)
"""For a loss that picks each token's log-probability, as reinforcement learning and distillation
do. Prompts take 704 of a policy's 1,024 tokens; without them it takes 31.6 instead of 49.4 ms
(H200, 2026-11-29)."""

CROSS_ENTROPY: Final = "nll_loss"
"""PyTorch's kernels of a cross-entropy, which ignores tokens by their label."""

BACKWARD: Final = "SoftMaxBackward"

PICKS: Final = "scatter_gather_elementwise_kernel"
"""PyTorch's kernel of gather along the vocabulary, and of its gradient."""


def unfused_loss(subject: JudgedReport) -> Iterator[Finding]:
    """Casts, log-softmax, loss and their gradients between the product that makes the logits and
    those that take their gradient. Fused, the logits are read once and their gradient is written
    over them, which takes as long as the log-softmax alone does. That a fused one may also leave
    the logits on the chip is not counted, nor that logits of fewer tokens shorten the products.
    """
    rows = kernels_of_losses(subject)
    if rows.is_empty():
        return
    picked = matching(rows["name"], PICKS).any() and not matching(rows["name"], CROSS_ENTROPY).any()
    yield kernel_finding(
        subject,
        rows,
        rule="unfused-loss",
        title="the loss passes over all logits several times:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE_OF_PICKED if picked else CHANGE,
        evidence=(
            "between the product that makes the logits and that of their gradient:"
            f" {in_words(subject, rows)}",
            "the log-softmax stays: one pass that reads the logits and writes their gradient",
            *_products(subject, rows),
        ),
    )


def _products(subject: JudgedReport, rows: pl.DataFrame) -> Iterator[str]:
    """How long the products beside a loss take: one before it, two after its backward pass."""
    behind = (1, 2) if matching(rows["name"], BACKWARD).any() else ()
    beside = pl.any_horizontal(pl.col("of_loss").shift(n).over("lane") for n in (-1, *behind))
    marked = subject.kernels.with_columns(pl.col("op").is_in(rows["op"].implode()).alias("of_loss"))
    products = marked.filter(
        beside.fill_null(value=False) & ~pl.col("of_loss") & (pl.col("class") == "matmul")
    )
    if not products.is_empty():
        took = duration(subject.worst_ns(products, "ns"))
        yield f"the products beside it take {took} more: logits of fewer tokens shorten them, too"


def kernels_of_losses(subject: JudgedReport) -> pl.DataFrame:
    """The kernels of losses that pass over all logits several times, with `gain_ns`; no rows where
    they take less than `LOSS_PCT` of the kernel time."""
    rows = _losses(subject.kernels)
    return rows if share_of_kernels(subject, rows) >= LOSS_PCT else rows.clear()


def _losses(kernels: pl.DataFrame) -> pl.DataFrame:
    """The kernels between two others that are neither elementwise nor reductions, where one of them
    is a large log-softmax; with `gain_ns`.

    Args:
        kernels: as of `kernels_in_order`.
    """
    names = kernels[["name"]].unique()
    large = names.with_columns(pl.col("name").cast(pl.String).str.contains(_LARGE).alias("large"))
    if not large["large"].any():
        return kernels.clear().with_columns(gain_ns=pl.col("ns"))
    rows = kernels.join(large, on="name", how="left", maintain_order="left")
    inside = (is_glue() | (pl.col("class") == "reduction")).fill_null(value=False)
    rows = rows.with_columns(inside.alias("inside"), (~inside).cum_sum().alias("part"))
    loss = pl.col("inside") & (pl.col("large") & pl.col("inside")).any().over("lane", "part")
    gain = pl.when("large").then(0).otherwise("ns")
    return rows.filter(loss).with_columns(gain.cast(pl.Int64).alias("gain_ns"))
