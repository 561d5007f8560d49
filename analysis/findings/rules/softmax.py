"""Softmax over an axis that is not the last one in memory.

* `strided-softmax`: PyTorch then runs a kernel with a thread for each row, and few rows are few
  threads.
"""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.gpus import threads_held
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import in_words, kernel_finding, share_of_kernels
from nsysflow.analysis.frames.columns import matching
from nsysflow.analysis.frames.parallel import kept_with
from nsysflow.base.units import duration, percent

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

CROSS_ENTROPY: Final = r"\bnll_loss"

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
