"""`cast-storm`: conversions of tensors from one dtype to another."""

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
from nsysflow.analysis.findings.rules.recomputation import is_backward
from nsysflow.base.units import percent

CASTS_PCT: Final = 10.0
"""Autocast casts each weight once a step and each gradient back. Where matmuls are large that is
below this: 9 % of attn_sdpa's kernel time, 38 % with a batch of 256 rows (H200, 2026-11-22)."""

CHANGE: Final = (
    "keep parameters in bfloat16 (model.to(torch.bfloat16)) instead of casting them in each step",
    "one autocast region around the whole forward: casts of weights are then kept for its length",
    "torch.compile: it fuses casts into their neighbours",
)

OF_INFERENCE: Final = (
    "cast or dequantize weights once, before the loop, if they fit: nothing here changes them",
    "of weights in 8 or 4 bits: a matmul that reads them as they are (torchao, torch._scaled_mm)",
    "torch.compile: it fuses casts into their neighbours",
)

TRAINS: Final = r"(?i)backward|[^a-z]grad|dgrad|wgrad|adam|sgd|multi_tensor"
"""Kernels of a backward pass or an optimizer."""


def cast_storm(subject: JudgedReport) -> Iterator[Finding]:
    """Kernels that convert tensors, as autocast inserts them, outside of attention."""
    casts = pl.col("cast") & (pl.col("job").is_null() | (pl.col("job") != "attention"))
    rows = subject.kernels.filter(casts).with_columns(pl.col("ns").alias("gain_ns"))
    if share_of_kernels(subject, rows) < CASTS_PCT:
        return
    names = subject.kernels["name"].unique().cast(pl.String)
    trains = names.str.contains(TRAINS).any() or is_backward(subject).any()
    yield kernel_finding(
        subject,
        rows,
        rule="cast-storm",
        title=f"casts between dtypes: {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE if trains else OF_INFERENCE,
        evidence=(in_words(subject, rows),),
    )
