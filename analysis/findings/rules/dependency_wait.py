"""`dependency-wait`: a stream waits for another one, and the GPU has nothing else to do."""

from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, line, place
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.base.units import number

CHANGE: Final = (
    "record the event right after the work that is needed, not after all that follows",
    "wait as late as possible: right before the first kernel that needs it (stream.wait_event)",
    "give the waiting stream other work meanwhile, or put both on one stream",
)


def dependency_wait(subject: JudgedReport) -> Iterator[Finding]:
    """Each phase in which the GPU idles although the next operation was launched long before."""
    rows = subject.tables.gap_summary.filter(pl.col("cause") == "dependency")
    for (phase,), here in sorted(rows.group_by("phase"), key=lambda group: str(group[0])):
        yield _finding(subject, str(phase), here)


def _finding(subject: JudgedReport, phase: str, rows: pl.DataFrame) -> Finding:
    idle_ns = subject.worst_ns(rows, "total_ns")
    first: dict[str, Any] = rows.sort("total_ns", "culprit").row(-1, named=True)
    awaited = f" for {first['culprit']}" if first["culprit"] else " for another one"
    source, via = first["source"] or "", first["via"] or ""
    return Finding(
        rule="dependency-wait",
        title=f"a stream waits{awaited}{place(phase, line(source, via))}",
        change=CHANGE,
        evidence=(
            f"{subject.idle(idle_ns)}, in {number(int(rows['gaps'].sum()))}"
            " gaps whose next operation was launched long before",
        ),
        table="gap_summary",
        size_ns=idle_ns,
        steps=subject.steps,
        at_most_ns=idle_ns,
        phase=phase,
        source=source,
        via=via,
        culprit=first["culprit"],
    )
