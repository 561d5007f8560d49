"""`low-mfu`: matrix kernels far below the peak of the arithmetic that they ran in."""

from collections.abc import Iterator
from typing import Any, Final, cast

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import (
    JudgedReport,
    in_words,
    kernel_finding,
    share_of_kernels,
)
from nsysflow.analysis.findings.kernels import MATRIX_CLASSES
from nsysflow.base.peaks import Unit, peak_flops
from nsysflow.base.units import flops, percent

LOW_PCT: Final = 50.0
"""Half of the peak. Large matmuls reach 80 %: 790 of 989 TFLOP/s in bf16 on an H200."""

REACHED: Final = 0.8
"""What of the peak large products reach (as above)."""

MATRIX_PCT: Final = 50.0
"""With less of the kernel time in kernels known for matrix products, others do part of them."""

CHANGE: Final = (
    "larger products: a larger batch, or several small ones as one torch.bmm",
    "sizes that are multiples of 128 on every side, so that no tile is partly empty",
    "torch.compile(mode='max-autotune'): it tries Triton's matmuls beside cuBLAS's",
)


def low_mfu(subject: JudgedReport) -> Iterator[Finding]:
    """Declared FLOPs over the time of matmul, convolution and attention kernels alone, beside the
    peak of what these say they computed in. Without declared FLOPs it stays quiet."""
    steps = set(subject.timeline.step_paths["joined"])
    table = subject.tables.mfu.filter(pl.col("path").is_in(steps))
    if table.is_empty() or not subject.of_steps:
        return
    row: dict[str, Any] = table.sort("mfu_pct", nulls_last=True).row(0, named=True)
    matrix = pl.col("class").is_in(MATRIX_CLASSES) & (pl.col("device") == row["device"])
    rows = subject.kernels.filter(matrix)
    matrix_ns = subject.worst_ns(rows, "ns")
    peak = peak_flops(_gpu(subject, row["device"]), _unit(rows, row["unit"]))
    if peak is None or not matrix_ns or share_of_kernels(subject, rows) < MATRIX_PCT:
        return
    rate = row["flops"] * 1e9 / matrix_ns
    if rate >= LOW_PCT / 100 * peak:
        return
    left = rate / (REACHED * peak)
    gain = (pl.col("ns") * (1 - left)).round().cast(pl.Int64).alias("gain_ns")
    unit = _unit(rows, row["unit"])
    yield kernel_finding(
        subject,
        rows.with_columns(gain),
        rule="low-mfu",
        title=f"matrix kernels reach {percent(100 * rate / peak)} of the {unit} peak",
        change=CHANGE,
        evidence=(
            in_words(subject, rows),
            f"{flops(rate)}/s while they run, of {flops(peak)}/s: they ran in {unit}",
            f"MFU of the whole step, beside {row['unit']}: {percent(row['mfu_pct'])}",
        ),
        table="mfu",
    )


def _gpu(subject: JudgedReport, device: int) -> str:
    names = subject.tables.accounting.filter(pl.col("device") == device)["name"]
    return str(names[0] or "")


def _unit(rows: pl.DataFrame, declared: Unit) -> Unit:
    """The arithmetic with most of the time, by the kernels' names; else as declared."""
    sums = rows.group_by("unit").agg(pl.col("ns").sum()).sort("ns", "unit", descending=True)
    ran = sums["unit"][0] if len(sums) else None
    return cast("Unit", ran) if ran is not None else declared
