"""`concatenation`: kernels that only put tensors behind one another.

torch.cat reads and writes all of its tensors. A cache that grows by it is copied whole for each new
entry: of a thousand tokens, the first one is copied a thousand times.
"""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import (
    JudgedReport,
    kernel_finding,
    share_of_kernels,
)
from nsysflow.analysis.frames.lookup import matching
from nsysflow.base.units import between, percent

CONCATENATES: Final = r"(?i)CatArray|concatenate_kernel|cupy_concatenate"
"""Kernels of PyTorch, and CuPy's."""

WORTH_PCT: Final = 10.0
"""Models that join tensors here and there spend 8 % of their kernel time on it at most (43
recordings), a decoder that appended to its cache 60 % (H100, 2026-11-26)."""

MOSTLY: Final = 0.7
"""A tensor grows if so many steps take longer than the one before …"""

LEAST_PAIRS: Final = 10
"""… of at least so many."""

GROWING: Final = (
    "allocate it once for the longest case, and write into it: cache[:, at] = new",
    "a static KV cache (transformers: cache_implementation='static')",
    "append to a list, and concatenate once at the end",
)
CHANGE: Final = (
    "write the parts into one tensor that is allocated once, each into its slice",
    "torch.compile the module: it writes many parts to where they belong",
)


def concatenation(subject: JudgedReport) -> Iterator[Finding]:
    """The kernels of torch.cat and torch.stack, where they take much of the kernel time."""
    named = matching(subject.kernels["name"], CONCATENATES)
    rows = subject.kernels.filter(named).with_columns(pl.col("ns").alias("gain_ns"))
    share = share_of_kernels(subject, rows)
    if share < WORTH_PCT:
        return
    growth = _growth(subject, rows)
    yield kernel_finding(
        subject,
        rows,
        rule="concatenation",
        title=f"torch.cat {'copies a growing tensor' if growth else 'copies tensors'}:"
        f" {percent(share)} of kernel time",
        change=GROWING if growth else CHANGE,
        evidence=growth,
    )


def _growth(subject: JudgedReport, rows: pl.DataFrame) -> tuple[str, ...]:
    """In how many steps these kernels take longer than in the one before, as a sentence; none where
    that is no rule."""
    if not subject.of_steps:
        return ()
    step = subject.judged_steps["start_ns"].unique().sort()
    of_step = step.search_sorted(rows["start_ns"], side="right").alias("of")
    each = rows.group_by(of_step).agg(pl.col("ns").sum()).sort("of")["ns"]
    pairs, rises = len(each) - 1, int((each.diff() > 0).sum())
    if pairs < LEAST_PAIRS or rises < MOSTLY * pairs:
        return ()
    shortest, *_, longest = each.sort()
    spread = between(shortest, longest)
    return (f"in {rises} of {pairs} steps it takes longer than in the one before: {spread}",)
