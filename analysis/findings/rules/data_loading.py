"""`data-loading`: the GPU waits while the host gets the next batch ready.

A loader in the training process does its work between two steps. With worker processes it does it
during the steps, and the step only takes a finished batch.
"""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, place
from nsysflow.analysis.findings.host_functions import CHANGE_OF_WAIT, Running, running
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules import host_code
from nsysflow.analysis.findings.rules.loop_of_launches import loops
from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.analysis.replay.changes import Changes

CHANGE: Final = (
    "DataLoader(num_workers=4 or more, persistent_workers=True, pin_memory=True)",
    "a larger prefetch_factor where batches take unequally long",
    "do the work once, before training: store what is decoded or tokenized",
)
SAMPLE: Final = "see what Python does between the steps: record again with --sample-python 1000"


def data_loading(subject: JudgedReport) -> Iterator[Finding]:
    """Each phase that loads data while the GPU waits, and host code between marked steps: it is
    mostly the loader's.

    Not if other rules say what that code is: a loop of launches, or code that also holds the GPU up
    in a phase.
    """
    between = host_code.between_steps(subject)
    if host_code.runs_between_steps(subject) or OUTSIDE in loops(subject):
        between = between.clear()
    pauses = pl.concat([subject.pauses.filter("data"), between])
    for (phase,), rows in sorted(pauses.group_by("phase"), key=lambda group: str(group[0])):
        yield _finding(subject, str(phase), rows)


def _finding(subject: JudgedReport, phase: str, rows: pl.DataFrame) -> Finding:
    size_ns = subject.worst_ns(rows, "ns")
    known, ran = phase != OUTSIDE, running(subject, phase)
    what = f"{'waiting' if ran.waits else 'host code'} between the steps"
    most = f", most in {ran.most}" if ran.most else ""
    between = f"{what}: {ran.mostly}" if ran.mostly else f"{what}{most}"
    return Finding(
        rule="data-loading",
        title=f"the GPU waits for data{place(phase)}" if known else between,
        change=CHANGE if known else _change_between(subject, ran),
        evidence=(
            f"the GPU waits {subject.spent(size_ns)} for host code{place(phase)}",
            *ran.evidence,
            "the saving holds if the workers keep up" if known else "no range says what it does",
        ),
        table="host_stacks" if ran.evidence else "gap_summary",
        size_ns=size_ns,
        steps=subject.steps_with(rows["start_ns"]),
        changes=Changes(faster_host=((phase, 0.0),)),
        exact=known,
        process=subject.process_of(rows),
        phase=phase if known else "",
        source=ran.source,
        via=ran.via,
        fits=ran.waits and not known,
    )


def _change_between(subject: JudgedReport, ran: Running) -> tuple[str, ...]:
    """What to do about host code outside all ranges: it is no loader where batches have a phase."""
    if ran.waits:
        return CHANGE_OF_WAIT
    change = host_code.CHANGE if ran.evidence else (SAMPLE,)
    return change if subject.pauses["data"].any() else (*change, *CHANGE)
