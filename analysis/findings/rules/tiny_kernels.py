"""`tiny-kernels`: many kernels back to back that are mostly their own start and end."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import (
    LAUNCHES_TOO,
    JudgedReport,
    in_words,
    kernel_finding,
    share_of_kernels,
)
from nsysflow.analysis.findings.kernels import TINY_NS
from nsysflow.base.units import duration, percent

TINY_PCT: Final = 5.0
"""Less of the kernel time is not worth a change of the program."""

LEFT_AS_ONE: Final = 0.2
"""What is left of them as few kernels over many tensors: AdamW for 120 tensors took 1.37 ms in
1,140 kernels and 0.22 ms in 6 (H200, torch 2.11, 2026-11-22)."""

CHANGE: Final = (
    "one call over many tensors: torch._foreach_add_(tensors, ...), or the tensors as views of one",
    "torch.compile the loop: it fuses what it can",
    "a CUDA graph (torch.compile(mode='reduce-overhead')): its kernels start 1 us sooner",
)


def gain_as_few() -> pl.Expr:
    """`gain_ns` of kernels that few over many tensors replace."""
    return (pl.col("ns") * (1 - LEFT_AS_ONE)).round().cast(pl.Int64).alias("gain_ns")


def tiny_kernels(subject: JudgedReport) -> Iterator[Finding]:
    """Runs of kernels under 5 us, outside of an optimizer, also where the GPU never idles."""
    rows = subject.kernels.filter(pl.col("job") == "tiny").with_columns(gain_as_few())
    if share_of_kernels(subject, rows) < TINY_PCT:
        return
    count = subject.per_step(len(rows))
    yield kernel_finding(
        subject,
        rows,
        rule="tiny-kernels",
        title=f"{count:,} kernels under {duration(TINY_NS)} back to back:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE,
        evidence=(in_words(subject, rows), LAUNCHES_TOO),
    )
