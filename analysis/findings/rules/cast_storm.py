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
from nsysflow.analysis.findings.kernels import covered, run_of
from nsysflow.analysis.findings.rules.recomputation import is_backward
from nsysflow.analysis.frames.lookup import repeated
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

SCALED: Final = "what was cast from integers is scaled, and a matmul reads it"


def cast_storm(subject: JudgedReport) -> Iterator[Finding]:
    """Kernels that convert tensors, as autocast inserts them, outside of attention. Where nothing
    trains and weights are dequantized, the kernels that scale them are counted, too."""
    kernels = subject.kernels.with_columns(pl.col("ns").alias("gain_ns"))
    casts = pl.col("cast") & (pl.col("job").is_null() | (pl.col("job") != "attention"))
    scaled = _dequantizing(kernels)
    if share_of_kernels(subject, kernels.filter(casts | scaled)) < CASTS_PCT:
        return
    names = kernels["name"].unique().cast(pl.String)
    trains = names.str.contains(TRAINS).any() or is_backward(subject).any()
    dequantizes = not trains and share_of_kernels(subject, kernels.filter(scaled)) >= CASTS_PCT
    rows = kernels.filter(casts | scaled if dequantizes else casts)
    share = share_of_kernels(subject, rows)
    if share < CASTS_PCT:
        return
    what = "weights dequantized in each step" if dequantizes else "casts between dtypes"
    yield kernel_finding(
        subject,
        rows,
        rule="cast-storm",
        title=f"{what}: {percent(share)} of kernel time",
        change=CHANGE if trains else OF_INFERENCE,
        evidence=(in_words(subject, rows), *([SCALED] if dequantizes else [])),
    )


def _dequantizing(kernels: pl.DataFrame) -> pl.Series:
    """Whether each kernel is a cast from integers or one of the elementwise kernels right behind
    it, where a matmul follows these on the stream."""
    if not kernels["from_integers"].any():
        return repeated(value=False, length=len(kernels))
    scaling = (pl.col("class") == "elementwise") & ~pl.col("from_integers")
    runs = run_of(kernels, scaling)
    matmul = pl.col("class") == "matmul"
    beside = kernels.select(
        pl.col("from_integers").shift(1).over("lane").alias("before"),
        matmul.shift(-1).over("lane").alias("after"),
    )
    reads = beside["before"][runs["first"]] & beside["after"][runs["last"]]
    return covered(kernels, runs.filter(reads).with_columns(pl.col("first") - 1))
