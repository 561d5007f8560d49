"""`exposed-communication`: the GPU communicates while nothing computes, and kernels wait for it."""

from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, place
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.units import number, size

WORTH_PCT: Final = 5
"""With well-filled buckets 2.7 % of a step stays exposed (ddp-bucketed, two H200s): the last bucket
has nothing left to hide behind."""

CHANGE: Final = (
    "send while backward goes on: DistributedDataParallel's buckets (bucket_cap_mb), FSDP prefetch",
    "send less often or less: no_sync() while gradients accumulate, bf16 gradients",
    "larger batches per GPU, so that there is more to compute meanwhile",
)


def exposed_communication(subject: JudgedReport) -> Iterator[Finding]:
    """All communication that kernels wait for: what a step takes if it takes no time."""
    comm = subject.tables.comm.filter(pl.col("exposed_ns") > 0)
    exposed_ns = subject.worst_ns(comm, "exposed_ns")
    if comm.is_empty() or 100 * exposed_ns < WORTH_PCT * subject.step_ns:
        return
    most: dict[str, Any] = comm.sort("exposed_ns", "phase", "name").row(-1, named=True)
    operation = most["operation"] or most["name"]
    count = subject.per_step(int(comm["count"].sum()))
    sent = comm["bytes"].sum() if comm["bytes"].null_count() == 0 else None
    moved = "" if sent is None else f" of {size(subject.per_step(int(sent)))} in all"
    yield Finding(
        rule="exposed-communication",
        title=f"communication that kernels wait for: {operation}{place(most['phase'])}",
        change=CHANGE,
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
