"""`layout-transpose`: kernels that only put a tensor into another order."""

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

LAYOUT_PCT: Final = 5.0
"""Some copies into another order are needed: attention's heads took 2 % of the kernel time of
GPT-2 with fused attention. NCHW under cuDNN's tensor cores took 18 % (H200, 2026-11-22)."""

CONVOLUTIONS: Final = (
    "channels_last: model.to(memory_format=torch.channels_last), and its input likewise",
    "no .permute() or NCHW operation between convolutions: each makes cuDNN convert again",
)
FASTER_TOO: Final = (
    "convolutions and norms are faster in NHWC, too: it saves more than these conversions"
)
COPIES: Final = (
    "no .contiguous() or .reshape() of a transposed tensor: matmul and attention can read it",
    "keep one order through the layer: transpose a weight once, at the start",
    "torch.compile: it reads through transposes, and fuses the copies that are left",
)


def layout_transpose(subject: JudgedReport) -> Iterator[Finding]:
    """cuDNN's conversions between NCHW and NHWC, transposes, and copies of strided tensors.

    Where channels_last takes the conversions away, convolutions and norms get faster, too: on an
    H100 2.9 of 13.8 ms were conversions, and 6.8 ms were saved (2026-11-25). How much that is
    depends on shapes that no kernel's name tells, so these are what is saved at least.
    """
    orders = pl.col("layout") & (pl.col("job").is_null() | (pl.col("job") == "chain"))
    rows = subject.kernels.filter(orders).with_columns(pl.col("ns").alias("gain_ns"))
    if share_of_kernels(subject, rows) < LAYOUT_PCT:
        return
    of_convolutions = pl.col("name").cast(pl.String).str.contains("(?i)nhwc|convertTensor")
    convolutions = int(rows.filter(of_convolutions)["ns"].sum()) * 2 > int(rows["ns"].sum())
    yield kernel_finding(
        subject,
        rows,
        rule="layout-transpose",
        title="tensors copied into another order:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CONVOLUTIONS if convolutions else COPIES,
        evidence=(in_words(subject, rows), *([FASTER_TOO] if convolutions else [])),
        saves_more=convolutions,
    )
