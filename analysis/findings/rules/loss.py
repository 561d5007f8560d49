"""Losses that pass over all logits several times, and softmax over an axis that is not the last.

* `unfused-loss`: a cross-entropy over a large vocabulary, in kernels of its own.
* `strided-softmax`: a softmax, mostly of a cross-entropy, over an axis with others behind it in
  memory. PyTorch then runs a kernel with a thread for each row, and few rows are few threads.
"""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.gpus import threads_held
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import in_words, kernel_finding, share_of_kernels
from nsysflow.analysis.findings.kernels import is_glue
from nsysflow.analysis.frames.columns import matching
from nsysflow.analysis.frames.parallel import kept_with
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


SPATIAL: Final = r"\bcunn_SpatialSoftMax(?:Forward|Backward)"
"""PyTorch's kernels of softmax and log-softmax over an axis with others behind it. A thread goes
through one row, whose numbers are far apart; up to 1,024 rows that lie side by side are a block."""

FORWARD: Final = r"\bcunn_SpatialSoftMaxForward"

FEW_THREADS: Final = 0.25
"""With more of the threads that its GPU holds it is fast enough: class maps of eight images of 512
x 1,024 pixels have all of them, and move 1.4 TB/s. Logits of 16 x 1,024 tokens have 6 %, and move
0.06 TB/s (H200, 2026-12-01)."""

STRIDED_PCT: Final = 5.0
"""Less of the kernel time is not worth a line."""

CHANGE_OF_LOSS: Final = (
    "put the classes last: F.cross_entropy(logits.flatten(0, 1), target.flatten()) instead of"
    " logits.transpose(1, 2)",
    "for images: F.cross_entropy(logits.permute(0, 2, 3, 1).flatten(0, 2), target.flatten())",
)
"""A language model with 8,192 classes took 63.1 ms a step, and 32.7 with the classes last (H200,
2026-12-01)."""

CHANGE_OF_SOFTMAX: Final = (
    "take the softmax over the last axis: x.transpose(1, -1).softmax(-1) instead of x.softmax(1)",
    "make the tensor in that order from the start: a transposed one is copied first",
)


def strided_softmax(subject: JudgedReport) -> Iterator[Finding]:
    """Softmax over an axis that is not the last, by kernels with few threads. Over the last axis a
    block goes through each row, and many rows fill the GPU.

    No trace tells the sizes. So these kernels take their time times the share of the threads that
    they have: the other kernel is not slower than this one with all threads. The program of
    `CHANGE_OF_LOSS` saves 30.4 ms a step; 29.9 ms were estimated.
    """
    rows = strided_softmaxes(subject)
    if rows.is_empty():
        return
    softmaxes, copies = rows.filter(~pl.col("copy")), rows.filter("copy")
    forward = softmaxes.filter(matching(softmaxes["name"], FORWARD))
    held = softmaxes.sort("ns")["held"][-1]
    copied = duration(subject.worst_ns(copies, "ns"))
    yield kernel_finding(
        subject,
        rows,
        rule="strided-softmax",
        title="softmax over an axis that is not the last:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE_OF_LOSS if _is_loss(subject) else CHANGE_OF_SOFTMAX,
        evidence=(
            in_words(subject, softmaxes),
            f"the longest has {percent(100 * held)} of the threads that the GPU holds",
            *((f"copies for that order take {copied} more",) if len(copies) else ()),
        ),
        at=forward if len(forward) else None,
    )


def _is_loss(subject: JudgedReport) -> bool:
    """Whether a cross entropy runs."""
    return bool(matching(subject.kernels["name"], CROSS_ENTROPY).any())


def strided_softmaxes(subject: JudgedReport) -> pl.DataFrame:
    """Kernels of softmax over an axis that is not the last, with few threads; and the copies into
    another order (`copy`) right before a forward one and right behind a backward one on the stream.
    With `held`, their share of the threads, and `gain_ns`. No rows where they take less than
    `STRIDED_PCT` of the kernel time. Attention that is not fused is another finding's."""
    return kept_with(subject, "strided softmaxes", lambda: _strided(subject))


def _strided(subject: JudgedReport) -> pl.DataFrame:
    spatial = matching(subject.kernels["name"], SPATIAL).alias("spatial")
    if not spatial.any():
        return subject.kernels.clear()
    kernels = subject.kernels.with_columns(
        spatial,
        matching(subject.kernels["name"], FORWARD).alias("forward"),
        threads_held(subject, subject.kernels),
    )
    attention = (pl.col("job") == "attention").fill_null(value=False)
    few = (pl.col("held") <= FEW_THREADS).fill_null(value=False)
    marked = kernels.with_columns((pl.col("spatial") & few & ~attention).alias("strided"))
    before = (pl.col("strided") & pl.col("forward")).shift(-1).over("lane")
    behind = (pl.col("strided") & ~pl.col("forward")).shift(1).over("lane")
    copy = pl.col("layout") & (before | behind).fill_null(value=False)
    left = pl.when("strided").then(pl.col("ns") * pl.col("held")).otherwise(0)
    rows = marked.with_columns(
        copy.alias("copy"), (pl.col("ns") - left.cast(pl.Int64)).alias("gain_ns")
    ).filter(pl.col("strided") | pl.col("copy"))
    rows = rows.drop("spatial", "forward", "strided")
    return rows if share_of_kernels(subject, rows) >= STRIDED_PCT else rows.clear()
