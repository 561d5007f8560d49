"""`cast-storm`: conversions between float32 and 16 bits."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import (
    JudgedReport,
    in_words,
    kernel_finding,
    share_of_kernels,
)
from nsysflow.base.units import percent

CASTS_PCT: Final = 10.0
"""Autocast casts each weight once a step and each gradient back. Where matmuls are large that is
below this: 9 % of attn_sdpa's kernel time, 38 % with a batch of 256 rows (H200, 2026-11-22)."""

CHANGE: Final = (
    "keep parameters in bfloat16 (model.to(torch.bfloat16)) instead of casting them in each step",
    "one autocast region around the whole forward: casts of weights are then kept for its length",
    "torch.compile: it fuses casts into their neighbours",
)


def cast_storm(subject: JudgedReport) -> Iterator[Finding]:
    """Kernels that convert tensors, as autocast inserts them, outside of attention."""
    casts = pl.col("cast") & (pl.col("job").is_null() | (pl.col("job") != "attention"))
    rows = subject.kernels.filter(casts).with_columns(pl.col("ns").alias("gain_ns"))
    if share_of_kernels(subject, rows) < CASTS_PCT:
        return
    yield kernel_finding(
        subject,
        rows,
        rule="cast-storm",
        title="casts between float32 and 16 bits:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE,
        evidence=(in_words(subject, rows),),
    )
