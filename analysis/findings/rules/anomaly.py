"""`anomaly-detection`: autograd looks for NaN, as torch.autograd.set_detect_anomaly(True) asks.

In the forward pass each operator writes down the stack that called it. In the backward pass each
gradient is compared with itself, and the host waits for the answer.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.host_functions import LEAST_PCT, stacks_with
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.launches import itself
from nsysflow.analysis.findings.repeated import BACKWARD
from nsysflow.analysis.findings.stall_findings import Stalls
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.units import percent

WRITES_STACK: Final = r"(?:^|/)torch/fx/traceback\.py format_stack$"
"""Called by anomaly detection for each operator (torch/csrc/autograd/python_anomaly_mode.cpp), and
by torch.compile while it compiles."""

CHANGE: Final = (
    "no torch.autograd.set_detect_anomaly(True), and no torch.autograd.detect_anomaly() around it",
    "turn it on for the one step in which a NaN appears: look at the loss every 100 steps",
)


def anomaly_detection(subject: JudgedReport, stalls: Stalls) -> Finding | None:
    """The reads of one place, if anomaly detection asks for them: in backward, in a loop of no line
    of the program, while operators write down their stacks elsewhere. None if it does not."""
    if stalls.source or stalls.loop_kernels is None or not re.search(BACKWARD, stalls.phase):
        return None
    written = dict(_shares(subject))
    if not written:
        return None
    found = stalls.finding(
        subject,
        rule="anomaly-detection",
        what=f"autograd looks for NaN in each gradient{stalls.many(subject)}",
        change=CHANGE,
    )
    faster = Changes(
        faster_host=tuple((itself(subject, phase), 1 - part) for phase, part in written.items())
    )
    where = ", ".join(f"{percent(100 * part)} in {phase}" for phase, part in written.items())
    return replace(
        found,
        evidence=(
            *found.evidence,
            "operators write down the stack that called them:"
            f" {where} of the host code that the GPU waits for",
        ),
        changes=Changes.together([faster, *([found.changes] if found.changes else [])]),
        ends=("only the waits go", "the checks and the stacks go, too"),
    )


def _shares(subject: JudgedReport) -> Iterator[tuple[str, float]]:
    """Each phase in which operators write down stacks, with the share that this takes of the host
    code for which the GPU waits there; by time, most first. It takes as much of that as a function
    that is named, and of all the time in which stacks are written down."""
    stacks = subject.view.host_stacks
    if stacks is None:
        return
    writing = stacks_with(subject, WRITES_STACK)
    spent = stacks.filter(pl.col("stack").is_not_null(), pl.col("phase") != "").select(
        pl.col("phase").cast(pl.String), "idle_ns", writes=pl.col("stack").is_in(writing.implode())
    )
    sums = spent.group_by("phase").agg(
        pl.col("idle_ns").sum().alias("whole_ns"),
        pl.col("idle_ns").filter("writes").sum().alias("writing_ns"),
    )
    writing_ns = pl.col("writing_ns")
    least_ns = LEAST_PCT / 100 * pl.max_horizontal("whole_ns", writing_ns.sum())
    worth = sums.filter(writing_ns > 0, writing_ns >= least_ns)
    part = (writing_ns / pl.col("whole_ns")).alias("part")
    yield from worth.sort(-writing_ns, "phase").select("phase", part).iter_rows()
