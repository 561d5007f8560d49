"""`exposed-copy`: the GPU copies while nothing computes.

A copy on the stream of the kernels that need it comes before them. On a stream of its own, started
a step ahead, it runs under the kernels of the step before.
"""

from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, place
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.units import number, size

WORTH_PCT: Final = 12.5
"""Copying ahead takes a stream, an event and a second set of buffers: not worth it for less than an
eighth of a step. Pinned copies right before their kernels leave 10 % (h2d-pinned); 23 % is what
overlap-in_turn lost."""

OF_OWN_WORTH_PCT: Final = 5.0
"""Copies that have a stream of their own need only a change of order."""

LESS: Final = "copy less: smaller types, one copy instead of many, work done on the GPU"
CHANGE: Final = (
    "copy the next batch on a stream of its own (torch.cuda.Stream, non_blocking=True) while this"
    " one computes",
    LESS,
)
OF_OWN_STREAM: Final = (
    "two buffers in turn: copy the next batch into one while the step computes with the other",
    "let the copies' stream wait for the step before the last one, not for this one",
    LESS,
)
"""The copies have a stream of their own already, but wait there for the kernels."""
TO_THE_HOST: Final = (
    "copy on a stream of its own (torch.cuda.Stream, non_blocking=True, into pinned memory) while"
    " the next step computes",
    LESS,
)


def exposed_copy(subject: JudgedReport) -> Iterator[Finding]:
    """Each direction of asynchronous copies that run while nothing computes."""
    copies = subject.tables.copies.filter(
        pl.col("copy_label").cast(pl.String).str.ends_with("_async"), pl.col("exposed_ns") > 0
    )
    for (direction,), rows in sorted(copies.group_by("direction"), key=lambda group: str(group[0])):
        exposed_ns = subject.worst_ns(rows, "exposed_ns")
        own = _have_own_stream(subject, str(direction))
        if 100 * exposed_ns >= (OF_OWN_WORTH_PCT if own else WORTH_PCT) * subject.step_ns:
            change = OF_OWN_STREAM if own else TO_THE_HOST if direction == "DtoH" else CHANGE
            yield _finding(subject, str(direction), rows, exposed_ns, change)


def _finding(
    subject: JudgedReport,
    direction: str,
    rows: pl.DataFrame,
    exposed_ns: int,
    change: tuple[str, ...],
) -> Finding:
    most: dict[str, Any] = rows.sort("exposed_ns", "phase").row(-1, named=True)
    copying_ns, compute_ns = subject.worst_ns(rows, "gpu_ns"), _compute_ns(subject)
    moved = subject.per_step(int(rows["bytes"].sum()))
    count = subject.per_step(int(rows["count"].sum()))
    return Finding(
        rule="exposed-copy",
        title=f"{direction} copies not overlapped by compute{place(most['phase'])}",
        change=change,
        evidence=(
            f"{number(count)} copies{subject.a_step} of {size(moved)} in all",
            f"nothing computes meanwhile for {subject.spent(exposed_ns)}",
            f"they take {subject.spent(copying_ns)}, and kernels {subject.spent(compute_ns)}",
            "the saving is that of copies that take no time, as if all ran under kernels",
        ),
        table="copies",
        size_ns=exposed_ns,
        steps=subject.steps,
        changes=Changes(scaled=((f"memcpy {direction}", 0.0),)),
        exact=copying_ns <= compute_ns,
        process=most["process"],
        device=most["device"],
        phase=most["phase"],
        culprit=f"memcpy {direction}",
    )


def _compute_ns(subject: JudgedReport) -> int:
    """How long the GPU computes, per step: copies of that length can run beside it."""
    return subject.worst_ns(subject.tables.accounting, "compute_ns")


def _have_own_stream(subject: JudgedReport, direction: str) -> bool:
    """Whether most of the time of these copies is on streams without kernels."""
    copies = subject.view.copies.filter(pl.col("direction") == direction)
    kernels = subject.timeline.events.ops.filter(pl.col("kind") == "kernel")
    alone = copies.join(kernels, on=["process", "device", "stream"], how="anti")
    length_ns = (pl.col("end_ns") - pl.col("start_ns")).sum()
    return 2 * int(alone.select(length_ns).item()) > int(copies.select(length_ns).item())
