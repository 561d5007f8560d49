"""`periodic-pause`: every k-th step takes much longer than the steps between.

Garbage collection, a checkpoint, an evaluation or a log that is written: what they cost is spread
over all steps, and no mean of the typical ones shows it.
"""

from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, line, place
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.base.units import duration, number

CHANGE: Final = (
    "if Python collects garbage: gc.freeze() after start-up, gc.disable() and gc.collect() rarely",
    "write checkpoints from another thread (torch.distributed.checkpoint.async_save), or rarely",
    "copy what is logged to pinned memory with non_blocking=True, and write it some steps later",
)


def periodic_pause(subject: JudgedReport) -> Iterator[Finding]:
    """One finding for each kind of slow step that comes back at equal distances.

    Its cost is spread over all steps after start-up, as it may come back in a part of them only.
    """
    kind = pl.col("kind").cast(pl.String)
    steps = subject.whole.step_groups.filter(kind.is_in(["steady", "periodic", "one-off"]))
    all_steps = pl.col("count").sum().over("process", "device").alias("all_steps")
    for row in steps.with_columns(all_steps).filter(kind == "periodic").iter_rows(named=True):
        yield _finding(subject, row)


def _finding(subject: JudgedReport, row: dict[str, Any]) -> Finding:
    spread_ns = round(row["excess_ns"] / row["all_steps"])
    source, via = row["source"] or "", row["via"] or ""
    where = place(row["phase"] or "", line(source, via))
    culprit = row["culprit"] or "host code"
    return Finding(
        rule="periodic-pause",
        title=f"every {number(row['every'])} steps one takes longer: {culprit}{where}",
        change=CHANGE,
        evidence=(
            f"steps {row['steps']} take {duration(row['excess_ns'] // row['count'])} longer than"
            " those around them",
            f"their longest gap is {duration(row['largest_ns'])}, cause {row['largest_cause']}",
        ),
        table="step_groups",
        size_ns=spread_ns,
        steps=row["count"],
        at_most_ns=spread_ns,
        beside=True,
        process=row["process"],
        device=row["device"],
        phase=row["phase"] or "",
        source=source,
        via=via,
        culprit=row["culprit"] or "",
    )
