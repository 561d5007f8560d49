"""`checkpoint-in-loop`: each step saves a checkpoint.

The host waits for a copy of each tensor. Then it pickles and writes them, while the GPU idles. The
copies are the smaller part of the time.
"""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, place
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.launches import itself
from nsysflow.analysis.findings.stall_findings import places_of
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.units import number

CHANGE: Final = (
    "save less often, or only when the model is better",
    "copy it on the GPU, {name: tensor.clone()}, and let another thread write the copy:"
    " torch.distributed.checkpoint.async_save",
)


def checkpoint_in_loop(subject: JudgedReport) -> Iterator[Finding]:
    """The ranges of checkpoints: the waits for their copies, and the host's code in them."""
    phases = subject.saving_phases
    if not phases:
        return
    stalls = subject.stalls_of_checkpoints
    waits = places_of(subject, stalls)
    gaps = subject.tables.gap_summary.filter(pl.col("phase").is_in(phases))
    size_ns = subject.worst_ns(gaps, "total_ns")
    blocked_ns = sum(one.blocked_ns for one in waits)
    to_host = pl.col("phase").is_in(phases) & (pl.col("direction") == "DtoH")
    copies = subject.per_step(int(subject.tables.copies.filter(to_host)["count"].sum()))
    largest = max(waits, key=lambda one: one.blocked_ns)
    removed = Changes(removed=tuple(removal for one in waits for removal in one.removals))
    host = Changes(faster_host=tuple((itself(subject, phase), 0.0) for phase in phases))
    yield Finding(
        rule="checkpoint-in-loop",
        title=f"a checkpoint is saved in each step: {number(copies)} copies to the host"
        f"{place(largest.phase, largest.line)}",
        change=CHANGE,
        evidence=(
            f"the GPU waits {subject.spent(size_ns)} for the checkpoint",
            f"the copies block the host for {subject.spent(blocked_ns)}; in the rest it pickles and"
            " writes",
            "the saving is for a loop without any checkpoint",
        ),
        table="gap_summary",
        size_ns=size_ns,
        steps=subject.steps_with(stalls["start_ns"]),
        changes=Changes.together([removed, host]),
        exact=False,
        at_most_ns=size_ns,
        process=subject.process_of(stalls),
        phase=largest.phase,
        source=largest.source,
        via=largest.via,
    )
