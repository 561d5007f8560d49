"""`small-grid`: kernels with too few blocks for the chip."""

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
from nsysflow.analysis.findings.kernels import TINY_NS
from nsysflow.analysis.schema import blocks_of_grid
from nsysflow.base.units import percent

MOST_WAVES: Final = 0.5
"""Below half a block per SM, twice the blocks still run at once."""

SMALL_PCT: Final = 5.0
"""Kernels with less of the kernel time are not worth it (verdict §4)."""

CHANGE: Final = (
    "more work per kernel: a larger batch, or the tensors of several calls stacked into one",
    "matmul with few rows and a long inner dimension: split-K, torch.compile(mode='max-autotune')",
    "a kernel of your own: more, smaller blocks; or run independent ones on two streams",
)


def small_grid(subject: JudgedReport) -> Iterator[Finding]:
    """Kernels of 5 us or more whose blocks leave more than half of the SMs empty.

    Twice the blocks would take half the time. Where grids were not loaded it stays quiet.
    """
    some = subject.kernels.filter(pl.col("ns") >= TINY_NS, pl.col("class") != "comm")
    small = some.with_columns(_waves(subject, some).alias("waves")).filter(
        pl.col("waves") < MOST_WAVES
    )
    rows = small.with_columns((pl.col("ns") // 2).alias("gain_ns"))
    share = share_of_kernels(subject, rows)
    if share < SMALL_PCT:
        return
    most = rows.group_by("name", "waves").agg(pl.col("ns").sum()).sort("ns", "waves")
    yield kernel_finding(
        subject,
        rows,
        rule="small-grid",
        title=f"kernels too small for the chip: {percent(share)} of kernel time",
        change=CHANGE,
        evidence=(
            in_words(subject, rows),
            f"the one with most time has {most['waves'][-1]:.2f} blocks per SM",
        ),
    )


def _waves(subject: JudgedReport, kernels: pl.DataFrame) -> pl.Series:
    """Blocks per SM of each kernel; null where its grid or the GPU's SMs are not known."""
    grid = subject.grids.select(pl.all().gather(kernels["detail"]))
    counts = subject.view.trace.devices[["device", "sm_count"]].drop_nulls().unique("device").rows()
    sms = kernels["device"].replace_strict(dict(counts), default=None, return_dtype=pl.Int64)
    return grid.select(blocks_of_grid() / sms).to_series()
