"""`unfused-attention`: a softmax between two matmuls, each of them a pass over all scores."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_finding import (
    LAUNCHES_TOO,
    in_words,
    kernel_finding,
    share_of_kernels,
)
from nsysflow.base.units import percent

CHANGE: Final = (
    "torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), in 16 bits",
    "Hugging Face: from_pretrained(..., attn_implementation='sdpa')",
    "a mask or bias of its own: torch.nn.attention.flex_attention, compiled; or FlashAttention",
)


def unfused_attention(subject: JudgedReport) -> Iterator[Finding]:
    """What runs between the two matmuls of an attention: scale, mask, casts, softmax, dropout.

    Fused attention keeps the scores on the chip, so that all of it goes; its two matmuls stay. On
    an H200 four layers of 1024 tokens took 15.1 ms a step so, and 3.5 ms fused (2026-11-22).
    """
    between = subject.kernels.filter(pl.col("job") == "attention")
    rows = between.with_columns(pl.col("ns").alias("gain_ns"))
    if rows.is_empty():
        return
    count = subject.per_step(rows["run"].n_unique())
    yield kernel_finding(
        subject,
        rows,
        rule="unfused-attention",
        title="attention is not fused:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time between its matmuls",
        change=CHANGE,
        evidence=(
            f"matmul, softmax, matmul: {count:,} times{' a step' if subject.of_steps else ''}",
            f"between the matmuls: {in_words(subject, rows)}",
            LAUNCHES_TOO,
        ),
    )
