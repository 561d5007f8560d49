"""`fp64-kernels`: kernels that compute in float64."""

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
from nsysflow.analysis.findings.kernels import MATRIX_CLASSES
from nsysflow.base.units import percent

DOUBLES_PCT: Final = 5.0
"""A few small kernels in float64, such as a sum of losses, are no mistake."""

FASTER_MATMUL: Final = 8
"""TF32 has 7.4 times the peak of float64 on an H100 and 8 times on an A100, both on the tensor
cores (NVIDIA's architecture papers, table 1, dense)."""

FASTER: Final = 2
"""Other kernels read and write half the bytes in float32."""

CHANGE: Final = (
    "call .float() on what comes from numpy: its arrays are float64",
    "look for a float64 operand: all that is computed with it is float64, too",
    "keep float64 for the few values that need it, such as sums over many batches",
)


def fp64_kernels(subject: JudgedReport) -> Iterator[Finding]:
    """Kernels on float64 tensors: twice the bytes, and slow arithmetic.

    A log prior from numpy made float64 of a loss on an H100: 7.3 of 14.3 ms of kernels a step
    (2026-11-26).
    """
    factor = pl.when(pl.col("class").is_in(MATRIX_CLASSES)).then(FASTER_MATMUL).otherwise(FASTER)
    gain_ns = (pl.col("ns") * (1 - 1 / factor)).round().cast(pl.Int64)
    rows = subject.kernels.filter("double").with_columns(gain_ns.alias("gain_ns"))
    share = share_of_kernels(subject, rows)
    if share < DOUBLES_PCT:
        return
    yield kernel_finding(
        subject,
        rows,
        rule="fp64-kernels",
        title=f"kernels compute in float64: {percent(share)} of kernel time",
        change=CHANGE,
        evidence=(
            in_words(subject, rows),
            "in float32 they read and write half the bytes; a GPU without fast float64 gains more",
        ),
    )
