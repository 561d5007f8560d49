"""Time that GPUs lose to each other.

* `exposed-communication`: the GPU communicates while nothing computes, and kernels wait for it.
* `load-imbalance`: one rank has more to compute than the others, which wait for it.
* `straggler`: one rank of a group comes late to its collectives, and the others wait there.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, place
from nsysflow.analysis.findings.frameworks import PYTORCH
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import trains
from nsysflow.analysis.findings.late_rank import (
    LongerCode,
    does_nothing_more,
    longer_function,
    longer_phase,
)
from nsysflow.analysis.ranks.ranks import Ranks, rank_names
from nsysflow.analysis.ranks.stragglers import PASSED_ON, where_it_starts
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.schema import blocks_of_grid, os_pid
from nsysflow.base.units import duration, number, percent, size

EXPOSED_PCT: Final = 5
"""With well-filled buckets 2.7 % of a step stays exposed (ddp-bucketed, two H200s): the last bucket
has nothing left to hide behind."""

CHANGE_OF_EXPOSED: Final = (
    "send while backward goes on: DistributedDataParallel's buckets (bucket_cap_mb), FSDP prefetch",
    "send less often or less: no_sync() while gradients accumulate, bf16 gradients",
    "larger batches per GPU, so that there is more to compute meanwhile",
)

CHANGE_OF_INFERENCE: Final = (
    "fewer GPUs for one model (a smaller tensor-parallel size), and more copies of it",
    "split each product, and send one part while the next one computes: PyTorch's asynchronous"
    " tensor parallelism (torch.ops.symm_mem.fused_matmul_reduce_scatter)",
    "send 16-bit numbers instead of float32; fuse all-reduce and norm, as serving engines do",
)
"""Without a backward pass there are no gradients: the parts of a layer are sent."""

ALL_TO_ALL: Final = r"(?i)all_?to_?all|SendRecv"
"""Each rank sends to each one: rows of embeddings, tokens of experts. No gradients."""

CHANGE_OF_ALL_TO_ALL: Final = (
    "exchange ahead: the rows of the next batch while this one computes (TorchRec:"
    " TrainPipelineSparseDist)",
    "two halves of a batch in turn: one is sent while the other one computes",
    "send less: 16 or 8 bits, equal rows once, experts near their tokens",
)


def exposed_communication(subject: JudgedReport) -> Iterator[Finding]:
    """All communication that kernels wait for: what a step takes if it takes no time."""
    comm = subject.tables.comm.filter(pl.col("exposed_ns") > 0)
    exposed_ns = subject.worst_ns(comm, "exposed_ns")
    if comm.is_empty() or 100 * exposed_ns < EXPOSED_PCT * subject.step_ns:
        return
    most: dict[str, Any] = comm.sort("exposed_ns", "phase", "name").row(-1, named=True)
    operation = most["operation"] or most["name"]
    count = subject.per_step(int(comm["count"].sum()))
    sent = comm["bytes"].sum() if comm["bytes"].null_count() == 0 else None
    moved = "" if sent is None else f" of {size(subject.per_step(int(sent)))} in all"
    change = CHANGE_OF_EXPOSED
    if re.search(ALL_TO_ALL, f"{operation} {most['phase']}"):
        change = CHANGE_OF_ALL_TO_ALL
    elif _infers(subject):
        change = CHANGE_OF_INFERENCE
    yield Finding(
        rule="exposed-communication",
        title=f"communication that kernels wait for: {operation}{place(most['phase'])}",
        change=change,
        evidence=(
            f"{number(count)} collectives{subject.a_step}{moved}",
            f"nothing computes meanwhile for {subject.spent(exposed_ns)}",
            "the saving is that of communication that takes no time; in a report judged alone,"
            " waiting for slower ranks is part of it",
        ),
        table="comm",
        size_ns=exposed_ns,
        steps=subject.steps,
        changes=Changes(scaled=tuple((name, 0.0) for name in sorted(comm["name"].unique()))),
        exact=False,
        process=most["process"],
        device=most["device"],
        phase=most["phase"],
        culprit=operation,
    )


def _infers(subject: JudgedReport) -> bool:
    """Whether a program of PyTorch computes without a backward pass. FSDP gathers weights then,
    too, and has its own advice."""
    names = subject.frameworks.names
    return PYTORCH in names and "fsdp" not in names and not trains(subject)


MORE_PCT: Final = 5
"""Equal ranks of one run compute equally long to 0.3 % (samples ddp-*, two H200s)."""

GROWN: Final = 1.02
"""A kernel that runs so much more often, or with so many more blocks, has more to do."""

EXPLAINED: Final = 0.25
"""At least this share of the time that a rank computes longer is of kernels that have more to do.
Not most of it: persistent kernels have one grid for all sizes. Of a GPU with slow clocks, none
has more to do."""

MOST_NAMED: Final = 2
"""So many kernels are named."""

CHANGE_OF_LOAD: Final = (
    "give all ranks equal work: the same number of tokens, sequences packed to equal lengths",
    "of experts or pipeline stages: balance the routing, or move layers to another stage",
    "if lengths must differ: sort batches by length, so that all ranks have long ones together",
)


def load_imbalance(
    subjects: Sequence[JudgedReport], ranks: Ranks, _added_ns: int = 0
) -> Iterator[tuple[JudgedReport, Finding]]:
    """The rank that computes longest, if that is because its kernels run more often or on more
    blocks than those of another rank; and its report."""
    computing = ranks.computing.join(ranks.matched.ranks, on="rank").sort("compute_ns", "rank")
    if len(computing) < 2:
        return
    own = computing.row(-1, named=True)
    usual_ns = computing.head(-1)["compute_ns"].mean()
    assert isinstance(usual_ns, float)
    known = {subject.report: subject for subject in subjects if subject.of_steps}
    others = computing.head(-1).filter(pl.col("report").is_in([*known]))
    more_pct = 100 * (own["compute_ns"] / max(1.0, usual_ns) - 1)
    if more_pct < MORE_PCT or own["report"] not in known or others.is_empty():
        return
    away = (pl.col("compute_ns") - usual_ns).abs()
    other = others.sort(away, "rank").row(0, named=True)
    kernels = _compared(*(_kernels(known[rank["report"]], rank) for rank in (own, other)))
    grown = kernels.filter("grown").sort("more_ns", "name", descending=[True, False])
    if float(grown["more_ns"].sum()) < EXPLAINED * float(kernels["more_ns"].sum()):
        return
    yield known[own["report"]], _load_finding(known[own["report"]], own, more_pct, computing, grown)


def _kernels(subject: JudgedReport, rank: dict[str, Any]) -> pl.DataFrame:
    """Per name of a rank's compute kernels: `count`, `blocks` and `ns` a step."""
    mine = (os_pid(pl.col("process")) == rank["process"]) & (pl.col("device") == rank["device"])
    ops = subject.view.ops.filter(mine, pl.col("part") == "compute", pl.col("kind") == "kernel")
    blocks = subject.grids.select(blocks_of_grid()).to_series()
    steps = max(1, len(subject.judged_steps.filter(mine)))
    return (
        ops.with_columns(blocks[ops["detail"]].alias("blocks"), pl.col("name").cast(pl.String))
        .group_by("name")
        .agg(
            pl.col("short_name").cast(pl.String).first(),
            (pl.len() / steps).alias("count"),
            pl.col("blocks").mean(),
            ((pl.col("end_ns") - pl.col("start_ns")).sum() / steps).alias("ns"),
        )
    )


def _compared(own: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """The kernels of both: `more_ns` that they take longer a step on the own rank, `often` whether
    they run more often there, and `grown` whether they have more to do."""
    both = own.join(other, on="name", how="full", coalesce=True, suffix="_other")
    often = pl.col("count").fill_null(0) > GROWN * pl.col("count_other").fill_null(0)
    larger = (pl.col("blocks") > GROWN * pl.col("blocks_other")).fill_null(value=False)
    more = pl.col("ns").fill_null(0) - pl.col("ns_other").fill_null(0)
    return both.with_columns(more.alias("more_ns"), often.alias("often")).with_columns(
        ((pl.col("often") | larger) & (pl.col("more_ns") > 0)).alias("grown")
    )


def _load_finding(
    subject: JudgedReport,
    own: dict[str, Any],
    more_pct: float,
    computing: pl.DataFrame,
    grown: pl.DataFrame,
) -> Finding:
    several = len(computing.filter(pl.col("report") == own["report"])) > 1
    name = f"{own['report']} on GPU {own['device']}" if several else own["report"]
    whole = int(own["compute_ns"])
    mean_ns = computing["compute_ns"].mean()
    assert isinstance(mean_ns, float)
    return Finding(
        rule="load-imbalance",
        title=f"load imbalance: {name} computes {percent(more_pct)} more than the other ranks",
        change=CHANGE_OF_LOAD,
        evidence=(
            f"it computes {subject.spent(whole)}, all ranks {subject.spent(round(mean_ns))} in the"
            " mean",
            *(_more(row) for row in grown.head(MOST_NAMED).iter_rows(named=True)),
        ),
        table="rank_steps",
        size_ns=round(whole - mean_ns),
        steps=subject.steps,
        changes=Changes(even_ranks=True),
        process=own["process"],
        device=own["device"],
        culprit=own["report"],
    )


def _more(row: dict[str, Any]) -> str:
    """How a kernel has more to do than on another rank."""
    if row["often"]:
        times = f"{_few(row['count'])} times a step"
        return f"{row['short_name']} runs {times}, on another rank {_few(row['count_other'] or 0)}"
    blocks = f"{number(round(row['blocks']))} blocks"
    return f"{row['short_name']} has {blocks}, on another rank {number(round(row['blocks_other']))}"


def _few(count: float) -> str:
    return number(round(count)) if count >= 1 or not count else f"{count:.2f}"


BLAMED_SHARE: Final = 0.5
"""A straggler has more than half of what all ranks of its group cost. Where ranks take turns in
being last, their steps vary, and no single one is to blame."""

CHANGE_OF_STRAGGLER: Final = (
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


ONLY_HOST: Final = 0.9
"""If the host has so much of a delay, nothing else explains any of it."""


def straggler(
    subjects: Sequence[JudgedReport], ranks: Ranks, added_ns: int = 0
) -> Iterator[tuple[JudgedReport, Finding]]:
    """Per rank that holds a group up, and is not held up itself: the finding, and the subject that
    waits longest for it.

    Args:
        subjects: the reports to look at.
        ranks: of the whole run.
        added_ns: how much longer recording makes a step, at most; 0 where that is not known.
    """
    judged = ranks.judged
    groups = judged.rank_groups
    of_all = judged.costs.group_by("group").agg(pl.col("cost_ns").sum().alias("of_all_ns"))
    own = groups.join(of_all, on="group", maintain_order="left").filter(
        ~PASSED_ON, pl.col("kind").ne_missing("PP")
    )
    blamed = own.filter(pl.col("cost_ns") > BLAMED_SHARE * pl.col("of_all_ns"))
    for rank in blamed["rank"].unique(maintain_order=True):
        mine = own.filter(pl.col("rank") == rank)
        yield _stragglers(subjects, judged, where_it_starts(mine, groups), added_ns)


def _reason(group: dict[str, Any]) -> str:
    """The largest reason why it holds up the others."""
    return max(BECAUSE, key=lambda reason: group[reason])


def _stragglers(
    subjects: Sequence[JudgedReport], judged: Ranks, group: dict[str, Any], added_ns: int
) -> tuple[JudgedReport, Finding]:
    """The subject and the finding."""
    waits = judged.waited_for(group["group"], group["rank"]).sort("waited_ns", descending=True)
    by_report = {subject.report: subject for subject in subjects}
    waiting = [row for row in waits.iter_rows(named=True) if row["report"] in by_report]
    if not waiting:  # its others were not looked at
        return by_report.get(group["report"], subjects[0]), _straggler_finding(
            subjects[0], judged, group, None
        )
    subject = by_report[waiting[0]["report"]]
    function = _longer_code(by_report, group, subject, longer_function)
    found = _straggler_finding(subject, judged, group, function)
    if function is None and found.size_ns <= added_ns and _is_alike(by_report, group):
        return subject, _while_recorded(found, judged, added_ns)
    phase = _longer_code(by_report, group, subject, longer_phase)
    return subject, _straggler_finding(subject, judged, group, function or phase)


def _is_alike(by_report: Mapping[str, JudgedReport], group: dict[str, Any]) -> bool:
    """Whether a rank is late by its host alone, which does nothing more than the others'."""
    late = by_report.get(group["report"])
    by_host = group["cost_host_ns"] >= ONLY_HOST * group["cost_ns"]
    if late is None or not late.of_steps or not group["steps"] or not by_host:
        return False
    others = [other for other in by_report.values() if other is not late]
    return does_nothing_more(late, others, group["cost_step_ns"])


def _while_recorded(found: Finding, judged: Ranks, added_ns: int) -> Finding:
    """The finding of a rank that may come late only because it is recorded: without the profiler,
    a step is shorter by at least what the others wait for it."""
    late = rank_names(judged.ranks)(found.culprit, found.device or 0)
    return replace(
        found,
        title=f"{late}'s host was slower while recorded, and the others waited for it",
        change=(
            f"nothing {late} does takes longer: look at its CPU cores, or record again and see"
            " whether it is the same rank",
        ),
        evidence=(
            *found.evidence,
            "it runs as many kernels as the others, and no phase takes longer than a host that is"
            " slower as a whole explains",
            f"recording makes a step up to {duration(added_ns)} longer",
        ),
        fits=True,
        by_recording=True,
    )


Compared = Callable[[JudgedReport, Sequence[JudgedReport], int], LongerCode | None]
"""`longer_function` or `longer_phase`."""


def _longer_code(
    by_report: Mapping[str, JudgedReport],
    group: dict[str, Any],
    subject: JudgedReport,
    compared: Compared,
) -> LongerCode | None:
    """Where a late host is longer than those of the other ranks; None where it is not late by its
    host, or nothing tells."""
    late = by_report.get(group["report"])
    if late is None or not subject.of_steps or _reason(group) != "cost_host_ns":
        return None
    others = [other for other in by_report.values() if other is not late]
    return compared(late, others, group["cost_step_ns"])


def _straggler_finding(
    subject: JudgedReport, judged: Ranks, group: dict[str, Any], longer: LongerCode | None
) -> Finding:
    steps = group["steps"]
    per_step = subject.of_steps and steps > 0
    cost_ns = group["cost_step_ns"] if per_step else group["cost_ns"]
    saved_ns = group["saved_step_ns"] if per_step else None
    lost_ns = cost_ns if saved_ns is None else saved_ns
    hidden = () if 2 * lost_ns >= cost_ns else (HIDDEN,)
    members = "all ranks" if group["kind"] == "all" else _called(group)
    share = f"{100 * group[_reason(group)] / max(1, group['cost_ns']):.0f} % of that time"
    (rank,) = judged.ranks.filter(pl.col("rank") == group["rank"]).iter_rows(named=True)
    late = rank_names(judged.ranks)(rank["report"], rank["device"])
    return Finding(
        rule="straggler",
        title=f"straggler: {late} holds up {members}",
        change=_change_of_straggler(late, longer),
        evidence=(
            f"{late} is last in {number(group['times_last'])} of"
            f" {number(group['collectives'])} collectives of {members}",
            f"the others wait {subject.spent(cost_ns)} for it, with nothing to compute",
            f"{BECAUSE[_reason(group)]} ({share})",
            *_where_longer(subject, longer),
            *hidden,
        ),
        table="rank_groups",
        size_ns=lost_ns,
        steps=max(1, group["steps_last"]),
        phase=longer.phase if longer else "",
        source=longer.source if longer else "",
        changes=Changes(unawaited=(group["rank"],)),
        exact=False,
        at_most_ns=lost_ns,
        process=rank["process"],
        device=rank["device"],
        culprit=rank["report"],
    )


def _where_longer(subject: JudgedReport, longer: LongerCode | None) -> tuple[str, ...]:
    if longer is None:
        return ()
    own = subject.spent(longer.own_ns)
    others = duration(longer.others_ns) if longer.others_ns else "no time"
    return (f"its host spends {own} in {longer.code}; the others' hosts spend {others} there",)


def _change_of_straggler(late: str, longer: LongerCode | None) -> tuple[str, ...]:
    if longer is None:
        return CHANGE_OF_STRAGGLER
    first = (
        f"see what {late}'s host does longer in {longer.phase}: code that only it runs, or other"
        " processes on its CPU cores"
        if longer.phase
        else f"make {longer.code} on {late} as quick as on the other ranks"
    )
    return (first, *CHANGE_OF_STRAGGLER[1:])


def _called(group: dict[str, Any]) -> str:
    """`TP group 0-7`."""
    return f"{group['kind'] or ''} group {group['members']}".strip()
