"""`profiler-overhead`: the profiler itself holds the GPU up, so that other figures are inflated."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.replay.changes import Changes

WORTH_PCT: Final = 2
"""Below, it changes no other figure. Starting nsys costs up to 1.1 % of five captured steps
(alloc_churn, rolloutcopy-torch)."""

CHANGE: Final = (
    "record less: no lines of launches (--backtrace waits, or none), fewer steps (--capture)",
    "leave out the first captured step: the profiler starts during it",
)


def profiler_overhead(subject: JudgedReport) -> Iterator[Finding]:
    """Idle time in which the profiler worked on the thread that launches."""
    idle_ns = subject.worst_ns(subject.tables.accounting, "profiler_ns")
    if 100 * idle_ns < WORTH_PCT * subject.step_ns:
        return
    rows = subject.tables.gap_summary.filter(pl.col("cause") == "profiler")
    yield Finding(
        rule="profiler-overhead",
        title="the profiler's own work keeps the GPU waiting",
        change=CHANGE,
        evidence=(
            f"{subject.idle(idle_ns)} while the profiler works:"
            f" {', '.join(sorted(rows['culprit'].unique()))}",
            "without a profiler the program does not lose this",
        ),
        table="gap_summary",
        size_ns=idle_ns,
        steps=subject.steps,
        changes=Changes(no_profiler=True),
    )
