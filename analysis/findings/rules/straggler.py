"""`straggler`: one rank comes last to most collectives, and the others wait for it there."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.subject import Subject
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.analysis.replay.changes.declared import Changes
from nsysflow.units import number

MOSTLY: Final = 0.5
"""A straggler is last in more than half of the collectives. Where ranks take turns in being last,
their steps vary, and no single one is to blame."""

CHANGE: Final = (
    "find out what that rank does more: compare its phases with those of another rank",
    "give all ranks equal work: equal batch sizes, sequences packed to equal lengths",
    "check the machine of that rank: clocks, power, other processes, its data source",
)


def straggler(subjects: Sequence[Subject], run: Ranks) -> Iterator[tuple[Subject, Finding]]:
    """The rank that the others wait for, and the subject that waits longest: there the saving is
    what its collectives take less if nobody is late."""
    ranks = run.judged.ranks.filter(pl.col("matched") > 0)
    here = ranks.filter(pl.col("report").is_in([subject.report for subject in subjects]))
    if len(ranks) < 2 or here.is_empty():
        return
    late: dict[str, Any] = ranks.sort("late_ns", "times_last").row(-1, named=True)
    waits: dict[str, Any] = here.sort("waited_ns").row(-1, named=True)
    if late["times_last"] <= MOSTLY * late["matched"] or late["report"] == waits["report"]:
        return
    (subject,) = (one for one in subjects if one.report == waits["report"])
    yield subject, _finding(subject, late, waits)


def _finding(subject: Subject, late: dict[str, Any], waits: dict[str, Any]) -> Finding:
    mine = subject.tables.collectives
    whole_ns = int(mine.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item())
    factor = max(0.0, 1 - waits["waited_ns"] / whole_ns)
    waited_ns = subject.per_step(waits["waited_ns"])
    return Finding(
        rule="straggler",
        title=f"straggler: {late['report']} is last in most collectives",
        change=CHANGE,
        evidence=(
            f"{late['report']} is last in {number(late['times_last'])} of"
            f" {number(late['matched'])} collectives",
            f"{waits['report']} waits {subject.spent(waited_ns)} in them for it",
            "the saving is that rank's, if nobody is late",
        ),
        table="ranks",
        size_ns=waited_ns,
        steps=subject.steps,
        changes=Changes(scaled=tuple((name, factor) for name in sorted(mine["name"].unique()))),
        exact=False,
        process=late["process"],
        device=late["device"],
        culprit=late["report"],
    )
