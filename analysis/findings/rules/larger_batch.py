"""Memory that is not used.

* `larger-batch`: the GPU's memory holds a larger batch.
"""

from collections.abc import Iterator
from math import floor
from typing import Any, Final

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.base.units import size

LEAST_TIMES: Final = 1.5
"""A batch that is less than so many times as large changes little."""

LEFT_FREE: Final = 0.1
"""This share of what the table says is left free. What is named so then ran, or a size within 2 %
of it, with each of eight programs on an H100 (docs/facts.md)."""

CHANGE: Final = (
    "a larger batch: each launch and each wait then serves more of it. The learning rate may have"
    " to follow",
    "if the batch is to stay: fewer steps of accumulation, or less recomputation",
)


def larger_batch(subject: JudgedReport) -> Iterator[Finding]:
    """Each process and GPU whose memory holds a larger batch.

    What that saves depends on what the kernels do with it: it is not estimated.
    """
    if not subject.of_steps:
        return
    for row in subject.tables.larger_batch.iter_rows(named=True):
        times = times_that_fit(row)
        if times >= LEAST_TIMES:
            yield _finding(subject, row, times)


def times_that_fit(row: dict[str, Any]) -> float:
    """How many times the batch memory holds, with some of it left free.

    Args:
        row: of the table `larger_batch`.
    """
    growing: int = row["growing_bytes"]
    fixed: int = row["fixed_bytes"]
    room: float = (1 - LEFT_FREE) * (row["times"] * growing + fixed) - fixed
    return floor(10 * room / growing) / 10


def _finding(subject: JudgedReport, row: dict[str, Any], times: float) -> Finding:
    peak, reserved, usable, growing, fixed = (
        size(row[f"{name}_bytes"])
        for name in ("peak", "peak_reserved", "usable", "growing", "fixed")
    )
    gpus = subject.tables.larger_batch["device"].n_unique()
    gpu = f" on GPU {row['device']}" if gpus > 1 else ""
    return Finding(
        rule="larger-batch",
        title=f"memory for {times:g} times the batch{gpu}: {peak} of {usable} are used",
        change=CHANGE,
        evidence=(
            f"when memory would run out first, {growing} grow with the batch and {fixed} do not",
            f"{LEFT_FREE:.0%} of the memory are left free, and so much lies in pieces as now:"
            f" {reserved} are reserved for these {peak}",
        ),
        table="larger_batch",
        size_ns=0,
        steps=subject.steps,
        process=row["process"],
        device=row["device"],
    )
