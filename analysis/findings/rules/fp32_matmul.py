"""`fp32-matmul`: float32 matrix products that do not use the tensor cores."""

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
from nsysflow.analysis.findings.kernels import peak_ratio
from nsysflow.base.units import percent

LEAST_RATIO: Final = 2.0
"""On a GPU that `nsysflow.base.peaks` does not list: every GPU since Ampere multiplies 16-bit
numbers at least twice as fast on its tensor cores as float32 numbers beside them (GA10x and AD10x
whitepapers, dense, with float32 sums)."""

CHANGE: Final = (
    "torch.set_float32_matmul_precision('high'): TF32 on the tensor cores; for convolutions"
    " torch.backends.cudnn.allow_tf32 = True",
    "torch.autocast('cuda', torch.bfloat16): twice the rate of TF32, and half the bytes",
    "in a Triton kernel of your own: tl.dot(a, b, input_precision='tf32')",
)


def fp32_matmul(subject: JudgedReport) -> Iterator[Finding]:
    """Matmuls and convolutions that run on the cores for float32 instead of the tensor cores.

    PyTorch multiplies float32 tensors so by default. On an H200 the same training step took 64.9 ms
    with and 11.9 ms without (2026-11-22).
    """
    gpus = subject.tables.accounting[["device", "name"]]
    ratios = {device: peak_ratio(gpu or "", "float32", "tf32") for device, gpu in gpus.rows()}
    ratio = pl.col("device").replace_strict(ratios, default=None, return_dtype=pl.Float64)
    saved = pl.col("ns") * (1 - 1 / ratio.fill_null(LEAST_RATIO))
    rows = subject.kernels.filter("simt").with_columns(
        saved.round().cast(pl.Int64).alias("gain_ns")
    )
    if rows.is_empty():
        return
    yield kernel_finding(
        subject,
        rows,
        rule="fp32-matmul",
        title="float32 matmul off the tensor cores:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE,
        evidence=(in_words(subject, rows), *_rates(gpus, ratios)),
    )


def _rates(gpus: pl.DataFrame, ratios: dict[int, float | None]) -> Iterator[str]:
    """How much faster the tensor cores are, and who says so."""
    for name, device in dict(zip(gpus["name"], gpus["device"], strict=True)).items():
        ratio = ratios[device]
        if ratio is None:
            yield f"tensor cores are at least {LEAST_RATIO:g} times as fast on any GPU since Ampere"
        else:
            yield f"{name}: TF32 has {ratio:.1f} times the peak of float32 (its data sheet)"
