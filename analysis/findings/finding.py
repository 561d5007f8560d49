"""What a rule finds, what changing it would save, and its place in words."""

import re
from dataclasses import dataclass
from typing import Final, Literal

from nsysflow.analysis.findings.explanation import Effort, explanation_of
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.names import IN_FUNCTION, OUTSIDE, SourceLine, one_line

Method = Literal["replay", "bound", "least"]
"""How a saving was reckoned: by replaying the change, as the most that it can be, or as the part of
it that a replay can know, which is the least."""

EXTENTS: Final[dict[Method, str]] = {"replay": "", "bound": "up to ", "least": "at least "}
"""The words before such a saving."""

EFFORTS: Final[dict[Effort, int]] = {
    "argument": 1,
    "line": 1,
    "lines": 2,
    "restructure": 4,
    "other": 4,
}
"""How much more a change has to save to come before one that takes a line."""

OF_THE_MOST: Final = 0.75
"""How much counts of what a saving may be beyond the least. A bound that came first was the fault
in 52 of 84 programs, and the fix then saved 0.85 of it; of replayed savings, but for launches, 38
of 48 and 0.92 (docs/facts.md, "What upper bounds turned out to save")."""


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How something takes longer from step to step.

    Attributes:
        ns_a_step: what each step takes more than the one before it.
        middle: the number of the middle one of these steps.
    """

    ns_a_step: float
    middle: float


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing to change.

    Attributes:
        rule: the rule's name, in kebab-case.
        title: what happens and where, one phrase in plain words.
        change: what to do, in the order in which people should try it.
        evidence: the numbers that it rests on, a sentence each.
        table: the table that holds these numbers.
        size_ns: what is lost there per step as the tables have it: which findings are worth a
            replay. Not a saving.
        steps: how many of the judged steps have it; 1 where no steps are judged.
        changes: what is replayed to value it; None where no replay can.
        sure: the part of the changes that is made in any case: it gives the low end of the saving.
            None where that is all of them.
        ends: when it saves the low end of its saving and when the high one, as it ends `… if`; None
            where `sure` is None.
        exact: whether the replayed change is what people would do. If not, its saving is the most
            that can be saved.
        saves_more: whether the change also makes other kernels faster, by what no trace tells: what
            is replayed is the least that it saves.
        at_most_ns: the most that can be saved per step, where nothing is replayed, or where what is
            replayed is more than people would do; 0 where it is not known.
        floor_ns: no step takes less once it is changed, whatever else is; 0 where nothing says so.
        worth_ns: a replay that saves less than this per step is not worth a line.
        waits: whether waits of the host are removed: of several, each may hide the others.
        joint: whether it stands for all waits at once.
        beside: whether it is lost beside the judged steps, and not in them.
        by_recording: whether recording alone may be why it is lost: it comes behind all others.
        takes: what the change takes, where that is not what the rule's mostly takes; else None.
        growth: how it grows from step to step; None where it does not.
        process: the OS pid; None where it is of several.
        device: None where it is of several.
        phase: where it happens; empty outside all ranges, and where it is in several places.
        source: the source line; empty where none is known.
        via: the framework's line, if `source` only calls that framework; else empty.
        culprit: the call, kernel or stream that it is about; may be empty.
        fits: whether `change` is chosen for the program's frameworks already.
        frameworks: those of the program, for which `change` is.
    """

    rule: str
    title: str
    change: tuple[str, ...]
    evidence: tuple[str, ...]
    table: str
    size_ns: int
    steps: int
    changes: Changes | None = None
    sure: Changes | None = None
    ends: tuple[str, str] | None = None
    exact: bool = True
    saves_more: bool = False
    at_most_ns: int = 0
    floor_ns: int = 0
    beside: bool = False
    by_recording: bool = False
    takes: Effort | None = None
    growth: Growth | None = None
    worth_ns: int = 0
    waits: bool = False
    joint: bool = False
    process: int | None = None
    device: int | None = None
    phase: str = ""
    source: str = ""
    via: str = ""
    culprit: str = ""
    fits: bool = False
    frameworks: tuple[str, ...] = ()

    @property
    def method(self) -> Method:
        """How its saving is reckoned."""
        if self.changes is None or not (self.exact or self.saves_more):
            return "bound"
        return "least" if self.saves_more else "replay"

    @property
    def effort(self) -> Effort:
        """What the change takes."""
        return self.takes or explanation_of(self.rule).effort

    @property
    def is_sampled(self) -> bool:
        """Whether samples tell its line: one of many at which the host was."""
        return self.table == "host_stacks"

    @property
    def makes_kernels_faster(self) -> bool:
        """Whether it is about the time that kernels take to compute."""
        scales = self.at_most_ns > 0 if self.changes is None else bool(self.changes.scaled)
        return scales and self.table in ("kernels", "gpu_metrics", "mfu")

    @property
    def is_bound_of_kernels(self) -> bool:
        """Whether it says how much less time kernels take at most."""
        return self.changes is not None and self.makes_kernels_faster and not self.saves_more

    @property
    def shortens_compute(self) -> bool:
        """Whether it is about the time that a GPU computes, which a late host may hide."""
        evens = self.changes is not None and self.changes.even_ranks
        return evens or self.makes_kernels_faster


@dataclass(frozen=True, kw_only=True)
class Ends:
    """The least and the most that a change saves, each also as a share of the step."""

    low_ns: int
    high_ns: int
    low_pct: float
    high_pct: float


@dataclass(frozen=True, kw_only=True)
class Valued:
    """A finding and its saving, per judged step (or of the judged window where there are none).

    Attributes:
        finding: what to change.
        low_ns: what is saved at least, once the changes above it in the plan are made.
        high_ns: what is saved at most then; the same where the change itself was replayed, but for
            changes of which only a part is `sure`.
        alone_ns: what it saves at most as the only change.
        alone_low_ns: what it saves at least as the only change.
        step_ns: the step that it is saved of: the mean after start-up.
        step_after_ns: the step with all changes of the plan up to this one.
        busy_after_ns: how long the GPU runs something in that step: no saving goes below.
        report: the report in which it was found.
        later_ns: what is saved at most once the host keeps up, where the host hides the saving; 0
            where it does not.
        plain: what is saved at least and at most, by what recording costs, where that makes much of
            the step and no plain step was timed; else None.
    """

    finding: Finding
    low_ns: int
    high_ns: int
    alone_ns: int
    alone_low_ns: int
    step_ns: int
    step_after_ns: int
    report: str
    later_ns: int = 0
    busy_after_ns: int = 0
    plain: Ends | None = None

    @property
    def counts(self) -> bool:
        """Whether the steps of the plan have its saving: it is replayed, or beside these steps."""
        return self.finding.changes is not None or self.finding.beside

    @property
    def is_range(self) -> bool:
        """Whether it saves one amount if only what is sure is changed, and more if all is."""
        return self.finding.sure is not None and self.low_ns < self.high_ns

    @property
    def pct(self) -> float:
        """The most that is saved, as a share of the step."""
        return share_pct(self.high_ns, self.step_ns)

    @property
    def is_figure(self) -> bool:
        """Whether one figure is said of it, and not a range or a bound."""
        return not self.is_range and self.finding.method != "bound"

    @property
    def said(self) -> Ends:
        """What is said of the saving: ranges and bounds are such that no plain step passes them."""
        if self.plain is not None and not self.is_figure:
            return self.plain
        return Ends(
            low_ns=self.low_ns,
            high_ns=self.high_ns,
            low_pct=share_pct(self.low_ns, self.step_ns),
            high_pct=self.pct,
        )

    @property
    def rank_ns(self) -> float:
        """What findings are sorted by: the least, and `OF_THE_MOST` of what may come on top."""
        return self.alone_low_ns + OF_THE_MOST * (self.alone_ns - self.alone_low_ns)

    @property
    def worth(self) -> float:
        """What findings of a plan are sorted by: their saving, by what the change takes."""
        return self.rank_ns / EFFORTS[self.finding.effort]


def share_pct(saved_ns: int, step_ns: int) -> float:
    """What is saved, as a share of a step."""
    return 100 * saved_ns / step_ns if step_ns else 0.0


def line(source: str, via: str = "") -> str:
    """`train.py:42 in check`, or `train.py:9 via transformers/trainer.py:2541 in _run_epoch`.

    Args:
        source: the program's line; empty where none is known.
        via: the framework's line, if `source` only calls that framework; else empty.
    """
    if not source or not via:
        return source or via
    return f"{without_function(source)} via {via}"


def without_function(source: str) -> str:
    """`train.py:42` of `train.py:42 in check`."""
    return re.sub(IN_FUNCTION, r"\1", source)


def place(phase: str, source: str = "", *, before: bool = False) -> str:
    """` in step/metrics, train.py:42 in check`: follows on what happens.

    Args:
        phase: a path; empty outside all ranges.
        source: a `line`; empty where none is known.
        before: whether the line is that of the launch after it.
    """
    where = f" in {one_line(phase)}" if phase and phase != OUTSIDE else " outside any range"
    if not source:
        return where
    return f"{where}, {'before ' if before else ''}{source}"


def in_function(source: str) -> str:
    """`step (train.py)` of `train.py:42 in step`: the same after lines were inserted above."""
    line = SourceLine.of(source)
    return f"{line.function} ({line.file})" if line and line.function else source
