"""The first finding of each program, its predicted saving and the real one, for docs/accuracy.md
and the log in docs/facts.md."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import nsysflow
from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.saving import Replays
from nsysflow.analysis.replay.changes import Changes, Removal
from tests.analysis.findings.test_simulated import Compared, findings_of_programs
from tests.analysis.test_simulated import simulated
from tests.reports import SAMPLES
from tests.tiny import AS_RECORDED

SKIPPED: Final = 1
"""The first step of a sample holds what starting the profiler costs (docs/facts.md)."""

FIRST_INTRODUCTION: Final = """\
## The first finding

What the page says first about each program of [case-studies.md](case-studies.md), and what the
remedy really saved. `up to` marks an upper bound. Rows without a verdict are of remedies that do
more than the finding counts (*besides*).

| before → after | first finding | step before, ms | predicted, ms | saved, ms \
| off, of the saving | of the step | good | besides |
| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | --- |"""

FIRST_SIMULATED_INTRODUCTION: Final = """
The same of the simulated programs, of their whole windows, without findings about kernels: theirs
have neither shapes nor names. The truth knows single sites, and all waits together; a finding at a
place with some of several sites has no verdict, nor has one of what is no site (launches, in most
programs). Programs without a finding: {quiet}.

| program | first finding | sites | window, ms | predicted, ms | saved, ms | off | good |
| --- | --- | --- | ---: | ---: | ---: | ---: | --- |"""


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """A sample of docs/case-studies.md, and the sample of its remedy.

    Attributes:
        before: the sample.
        after: the sample with the remedy.
        besides: what the remedy does that the finding does not count; empty if nothing.
        host: the finding's change, with one that stands for the host's own part of that.
    """

    before: str
    after: str
    besides: str = ""
    host: Changes | None = None


KERNELS: Final = "runs other, fused kernels"
METRICS: Final = (("step/metrics", 0.0),)

REMEDIES: Final = (
    Remedy(before="trainstep-torch", after="trainstep-graph", besides=KERNELS),
    Remedy(before="trainstep-fused", after="trainstep-graph"),
    Remedy(before="trainforward-fused", after="trainforward-graph"),
    Remedy(before="rolloutcopy-fused", after="rolloutcopy-graph"),
    Remedy(before="rolloutcopy-torch", after="rolloutcopy-graph", besides=KERNELS),
    Remedy(before="launch_bound-eager", after="launch_bound-graph"),
    Remedy(before="launch_bound-eager-plain", after="launch_bound-graph"),
    Remedy(before="nan_check-sync", after="nan_check-async"),
    Remedy(
        before="metrics-each_step",
        after="metrics-at_end",
        besides="loses the host code of step/metrics",
        host=Changes(removed=(Removal(kind="all"),), faster_host=METRICS),
    ),
    Remedy(before="dataload-sync", after="dataload-async"),
    Remedy(before="h2d-pageable", after="h2d-pinned"),
    Remedy(before="h2d-pinned_blocking", after="h2d-pinned"),
    Remedy(before="sum_many-loop", after="sum_many-fused", besides=KERNELS),
    Remedy(
        before="alloc_churn-empty_cache",
        after="alloc_churn-cached",
        besides="loses the host code of step/metrics",
        host=Changes(removed=(Removal(kind="alloc"),), faster_host=METRICS),
    ),
    Remedy(before="graph_break-breaks", after="graph_break-fullgraph", besides=KERNELS),
    Remedy(before="fusion-eager", after="fusion-fused", besides=KERNELS),
    Remedy(before="overlap-in_turn", after="overlap-side_stream"),
    Remedy(
        before="ddp-no_overlap-rank0",
        after="ddp-bucketed-rank0",
        besides="still sends, and computes slower meanwhile",
    ),
)


@cache
def subject(name: str) -> JudgedReport:
    """The steady steps of a sample, as recorded: so is the sample that it is compared with."""
    trace = nsysflow.load(SAMPLES / f"{name}.sqlite.xz")
    return JudgedReport(nsysflow.analyze(trace, replace(AS_RECORDED, skip=SKIPPED)))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the page said first of a sample, and what became of it.

    Attributes:
        remedy: the sample, and that of its remedy.
        first: the first finding, or None if the page had no findings.
        step_ns: a step before.
        saved_ns: what the remedy saved of it.
    """

    remedy: Remedy
    first: Valued | None
    step_ns: int
    saved_ns: int

    @property
    def said_ns(self) -> int:
        """What the finding said that it saves."""
        return self.first.high_ns if self.first else 0

    @property
    def off_ns(self) -> int:
        """How far apart they are."""
        return abs(self.said_ns - self.saved_ns)

    @property
    def good(self) -> bool:
        """Whether it came true, within 10 % of the saving or 1 % of the step."""
        return self.off_ns <= max(0.1 * abs(self.saved_ns), 0.01 * self.step_ns)


@cache
def outcomes() -> tuple[Outcome, ...]:
    """What became of the first finding of each sample."""
    return tuple(map(_outcome, REMEDIES))


def _outcome(remedy: Remedy) -> Outcome:
    found = find(subject(remedy.before))
    return Outcome(
        remedy=remedy,
        first=found.valued[0] if found.valued else None,
        step_ns=found.step_ns,
        saved_ns=found.step_ns - subject(remedy.after).step_ns,
    )


def first_findings() -> Iterator[str]:
    """The lines of the part on findings."""
    yield FIRST_INTRODUCTION
    yield from map(_row, outcomes())
    compared = findings_of_programs()
    quiet = sorted({*simulated()[1]} - {one.program for one in compared})
    yield FIRST_SIMULATED_INTRODUCTION.format(quiet=", ".join(quiet))
    yield from (_program(one) for one in compared if one.rank == 0)


def _row(outcome: Outcome) -> str:
    remedy = outcome.remedy
    besides = remedy.besides
    if remedy.host:
        more = (Replays(subject(remedy.before)).saving_ns(remedy.host) or 0) - outcome.said_ns
        besides = f"{besides}: {more / 1e6:.3f} ms more"
    times = (outcome.step_ns, outcome.said_ns, outcome.saved_ns)
    cells = (
        f"`{remedy.before}` → `{remedy.after}`",
        named(outcome.first) if outcome.first else "none",
        *(f"{ns / 1e6:.3f}" for ns in times),
        f"{100 * outcome.off_ns / abs(outcome.saved_ns):.1f} %",
        f"{100 * outcome.off_ns / outcome.step_ns:.1f} %",
        "" if remedy.besides else "yes" if outcome.good else "**no**",
        besides,
    )
    return f"| {' | '.join(cells)} |"


def named(valued: Valued) -> str:
    """The rule, where it fires, and whether its saving is an upper bound."""
    finding = valued.finding
    where = finding.source or finding.phase
    bound = "" if finding.method == "replay" else ", up to"
    return f"{finding.rule}, {where}{bound}" if where else f"{finding.rule}{bound}"


def _program(one: Compared) -> str:
    said, known = one.said_ns, one.saves_ns is not None
    off = abs(said - (one.saves_ns or 0)) / one.window_ns
    cells = (
        one.program,
        named(one.finding),
        ", ".join(one.sites),
        *(f"{ns / 1e6:.3f}" for ns in (one.window_ns, said)),
        f"{one.saves_ns / 1e6:.3f}" if one.saves_ns is not None else "",
        f"{100 * off:.1f} %" if known else "",
        ("yes" if one.hit else "**no**") if known else "",
    )
    return f"| {' | '.join(cells)} |"
