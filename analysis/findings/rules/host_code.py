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
from nsysflow.analysis.frames.parallel import kept_with
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

LOOP_NS: Final = 100_000
"""Between two steps a loop takes less than this for itself, its ranges and its counters: 16 us in
rolloutcopy-graph, where it is a third of a step."""


def host_code(subject: JudgedReport) -> Iterator[Finding]:
    """Each phase in which the GPU mostly waits for long pieces of Python, in at least half the
    steps; phases in which that is the same code are one finding, with the time between the steps
    if it goes on there."""
    for phases in _places(subject):
        yield _finding(subject, phases)


def runs_between_steps(subject: JudgedReport) -> bool:
    """Whether the code that holds the GPU up in a phase also runs between the steps."""
    return any(OUTSIDE in phases and len(phases) > 1 for phases in _places(subject))


def between_steps(subject: JudgedReport) -> pl.DataFrame:
    """The rows of `JudgedReport.pauses` between the steps, where ranges mark these."""
    between = (pl.col("phase") == OUTSIDE) & (pl.col("ns") >= LOOP_NS) & ~pl.col("loads_code")
    return subject.pauses.filter(between, subject.steps_marked)


Pauses = dict[str, pl.DataFrame]
"""Rows of `JudgedReport.pauses` by phase; `OUTSIDE` for those between the steps."""


def _places(subject: JudgedReport) -> list[Pauses]:
    """The pauses of each finding."""
    return kept_with(subject, "places of host code", lambda: [*_found_places(subject)])


def _found_places(subject: JudgedReport) -> Iterator[Pauses]:
    """The phases with long pauses, those together in which the same code runs."""
    phases = dict(_phases(subject))
    between = between_steps(subject)
    if not between.is_empty():
        phases = {OUTSIDE: between} | phases
    by_code: dict[str, Pauses] = {}
    for phase, rows in phases.items():
        code = running(subject, phase).mostly or phase
        by_code.setdefault(code, {})[phase] = rows
    return (found for found in by_code.values() if found.keys() != {OUTSIDE})


def _phases(subject: JudgedReport) -> Iterator[tuple[str, pl.DataFrame]]:
    """Each phase in which most of the wait for the host is long pauses that recur."""
    outside = (pl.col("phase") == OUTSIDE) & pl.lit(subject.steps_marked)
    short = (pl.col("ns") >= SHORT_NS) & ~pl.col("data") & ~pl.col("loads_code")
    host = pl.col("long") if launches_cost(subject) else short
    pauses = subject.pauses.filter(host, ~outside)
    whole = dict(subject.pauses.group_by("phase").agg(pl.col("ns").sum()).rows())
    for (phase,), rows in sorted(pauses.group_by("phase"), key=lambda group: str(group[0])):
        mostly = 2 * rows["ns"].sum() >= whole[phase]
        steps = subject.steps_with(rows["start_ns"])
        recurs = 2 * steps >= subject.steps if subject.of_steps else len(rows) >= LEAST_PAUSES
        if mostly and recurs:
            yield str(phase), rows


def _finding(subject: JudgedReport, phases: Pauses) -> Finding:
    rows = pl.concat(phases.values())
    size_ns = subject.worst_ns(rows, "ns")
    changes = Changes(faster_host=tuple((itself(subject, phase), 0.0) for phase in phases))
    first, *others = phases
    ran = running(subject, *phases)
    where = f" {_in_turn(phases)}" if others else place(first)
    return Finding(
        rule="host-code",
        title=f"{ran.mostly or 'one piece of host code'} holds the GPU up{where}",
        change=CHANGE_OF_WAIT if ran.waits else CHANGE if ran.evidence else (*CHANGE, SAMPLE),
        evidence=(
            f"the GPU waits {subject.spent(size_ns)} for it, in {number(len(rows))} pauses of"
            f" {duration(int(rows['ns'].sum()) // len(rows))}",
            *ran.evidence,
            "the saving is that of no host time there at all",
        ),
        table="host_stacks" if ran.evidence else "gap_summary",
        size_ns=size_ns,
        steps=subject.steps_with(rows["start_ns"]),
        changes=changes if others or first != OUTSIDE else None,
        exact=False,
        at_most_ns=size_ns,
        process=subject.process_of(rows),
        phase="" if others or first == OUTSIDE else first,
        source=ran.source,
        via=ran.via,
    )


def itself(subject: JudgedReport, phase: str) -> str:
    """The phase without those inside it, as a replay wants it."""
    paths = subject.tables.phases["path"]
    nested = phase != OUTSIDE and any(path.startswith(f"{phase}/") for path in paths)
    return phase + ITSELF if nested else phase


def _in_turn(phases: Pauses) -> str:
    """`between the steps and in forward`."""
    named = ["between the steps" if phase == OUTSIDE else f"in {phase}" for phase in phases]
    return f"{', '.join(named[:-1])} and {named[-1]}"
