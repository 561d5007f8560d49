"""`host-code`: one piece of Python holds the GPU up in every step.

A long piece between two launches: logging, a metric on the CPU, a Python loop, a file that is
written. A CUDA graph is no help: the piece itself has to become faster, rarer, or another thread's.
"""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, place
from nsysflow.analysis.findings.host_functions import CHANGE_OF_WAIT, running
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.launch_bound import launches_cost
from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.analysis.replay.apply import ITSELF
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.units import duration, number

CHANGE: Final = (
    "do it less often, later, on another thread, or on the GPU; launch the GPU's work before it",
    "make it faster: vectorise loops, cache what does not change",
)
SAMPLE: Final = "see which Python it is: record again with --sample-python 1000"

SHORT_NS: Final = 100_000
"""Between two launches a pause that is shorter may be the framework's own work."""

LEAST_PAUSES: Final = 3
"""Where no steps are judged, fewer pauses are start-up and no loop."""


def host_code(subject: JudgedReport) -> Iterator[Finding]:
    """Each phase in which the GPU mostly waits for long pieces of Python, in at least half the
    steps."""
    outside = (pl.col("phase") == OUTSIDE) & pl.lit(subject.steps_marked)
    short = (pl.col("ns") >= SHORT_NS) & ~pl.col("data") & ~pl.col("loads_code")
    host = pl.col("long") if launches_cost(subject) else short
    pauses = subject.pauses.filter(host, ~outside)
    whole = dict(subject.pauses.group_by("phase").agg(pl.col("ns").sum()).rows())
    for (phase,), rows in sorted(pauses.group_by("phase"), key=lambda group: str(group[0])):
        steps = subject.steps_with(rows["start_ns"])
        mostly = 2 * rows["ns"].sum() >= whole[phase]
        recurs = 2 * steps >= subject.steps if subject.of_steps else len(rows) >= LEAST_PAUSES
        if mostly and recurs:
            yield _finding(subject, str(phase), rows, steps)


def _finding(subject: JudgedReport, phase: str, rows: pl.DataFrame, steps: int) -> Finding:
    size_ns = subject.worst_ns(rows, "ns")
    known = phase != OUTSIDE
    nested = known and any(path.startswith(f"{phase}/") for path in subject.tables.phases["path"])
    at = phase + ITSELF if nested else phase
    ran = running(subject, phase)
    return Finding(
        rule="host-code",
        title=f"{ran.mostly or 'one piece of host code'} holds the GPU up{place(phase)}",
        change=CHANGE_OF_WAIT if ran.waits else CHANGE if ran.evidence else (*CHANGE, SAMPLE),
        evidence=(
            f"the GPU waits {subject.spent(size_ns)} for it, in {number(len(rows))} pauses of"
            f" {duration(int(rows['ns'].sum()) // len(rows))}",
            *ran.evidence,
            "the saving is that of no host time there at all",
        ),
        table="host_stacks" if ran.evidence else "gap_summary",
        size_ns=size_ns,
        steps=steps,
        changes=Changes(faster_host=((at, 0.0),)) if known else None,
        exact=False,
        at_most_ns=size_ns,
        process=subject.process_of(rows),
        phase=phase if known else "",
    )
