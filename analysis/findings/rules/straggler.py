"""`straggler`: one rank of a group comes late to its collectives, and the others wait there."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.analysis.ranks.stragglers import PASSED_ON, where_it_starts
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.units import number

MOSTLY: Final = 0.5
"""A straggler has more than half of what all ranks of its group cost. Where ranks take turns in
being last, their steps vary, and no single one is to blame."""

CHANGE: Final = (
    "find out what that rank does more: compare its phases with those of another rank",
    "give all ranks equal work: equal batch sizes, sequences packed to equal lengths",
    "check the machine of that rank: clocks, power, other processes, its data source",
)

BECAUSE: Final = {
    "cost_work_ns": "it computes longer",
    "cost_copy_ns": "its exposed copies take longer",
    "cost_group_ns": "it waits for other ranks in between",
    "cost_host_ns": "its host is late",
}

HIDDEN: Final = "without it, the others would wait for their own hosts for most of that time"


def straggler(
    subjects: Sequence[JudgedReport], ranks: Ranks
) -> Iterator[tuple[JudgedReport, Finding]]:
    """Per rank that holds a group up, and is not held up itself: the finding, and the subject that
    waits longest for it."""
    judged = ranks.judged
    groups = judged.rank_groups
    of_all = judged.costs.group_by("group").agg(pl.col("cost_ns").sum().alias("of_all_ns"))
    own = groups.join(of_all, on="group", maintain_order="left").filter(
        ~PASSED_ON, pl.col("kind").ne_missing("PP")
    )
    blamed = own.filter(pl.col("cost_ns") > MOSTLY * pl.col("of_all_ns"))
    for rank in blamed["rank"].unique(maintain_order=True):
        mine = own.filter(pl.col("rank") == rank)
        yield _found(subjects, judged, where_it_starts(mine, groups))


def _reason(group: dict[str, Any]) -> str:
    """The largest reason why it holds up the others."""
    return max(BECAUSE, key=lambda reason: group[reason])


def _found(
    subjects: Sequence[JudgedReport], judged: Ranks, group: dict[str, Any]
) -> tuple[JudgedReport, Finding]:
    """The subject and the finding."""
    waits = judged.waited_for(group["group"], group["rank"]).sort("waited_ns", descending=True)
    by_report = {subject.report: subject for subject in subjects}
    waiting = [row for row in waits.iter_rows(named=True) if row["report"] in by_report]
    if not waiting:  # its others were not looked at
        return by_report.get(group["report"], subjects[0]), _finding(subjects[0], judged, group)
    subject = by_report[waiting[0]["report"]]
    return subject, _finding(subject, judged, group)


def _finding(subject: JudgedReport, judged: Ranks, group: dict[str, Any]) -> Finding:
    report, steps = group["report"], group["steps"]
    per_step = subject.of_steps and steps > 0
    cost_ns = group["cost_step_ns"] if per_step else group["cost_ns"]
    saved_ns = group["saved_step_ns"] if per_step else None
    lost_ns = cost_ns if saved_ns is None else saved_ns
    hidden = () if 2 * lost_ns >= cost_ns else (HIDDEN,)
    members = "all ranks" if group["kind"] == "all" else _called(group)
    share = f"{100 * group[_reason(group)] / max(1, group['cost_ns']):.0f} % of that time"
    often = f" in {number(group['steps_last'])} of {number(steps)} steps" if steps else ""
    (rank,) = judged.ranks.filter(pl.col("rank") == group["rank"]).iter_rows(named=True)
    return Finding(
        rule="straggler",
        title=f"straggler: {report} holds up {members}{often}",
        change=CHANGE,
        evidence=(
            f"{report} is last in {number(group['times_last'])} of"
            f" {number(group['collectives'])} collectives of {members}",
            f"the others wait {subject.spent(cost_ns)} for it, with nothing to compute",
            f"{BECAUSE[_reason(group)]} ({share})",
            *hidden,
        ),
        table="rank_groups",
        size_ns=lost_ns,
        steps=max(1, group["steps_last"]),
        changes=Changes(unawaited=(group["rank"],)),
        exact=False,
        at_most_ns=lost_ns,
        process=rank["process"],
        device=rank["device"],
        culprit=report,
    )


def _called(group: dict[str, Any]) -> str:
    """`TP group 0-7`."""
    return f"{group['kind'] or ''} group {group['members']}".strip()
