"""Is a figure within its limit, beyond it, or too noisy to say? And which line costs most of it?"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, Literal, TypeAlias

from nsysflow.analysis.causes import CAUSES
from nsysflow.base.errors import CheckError
from nsysflow.base.names import SourceLine
from nsysflow.base.units import duration
from nsysflow.compare.baseline import Baseline, Interval, Known, ratio
from nsysflow.compare.budgets import Budget, Figure, Limit, Unit
from nsysflow.compare.captures import Capture, LoadedCaptures
from nsysflow.compare.change import mean_step, needed_for

_WORTH_LOOKING: Final = 0.1
"""A line that costs less than this share of the largest place is not where to start."""

_Place: TypeAlias = tuple[str | None, str, str]
"""The line, the phase and the cause."""


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """A place in the program, and what it costs.

    Attributes:
        source: such as `train.py:42 in step`; None where it is not known.
        what: what it costs, a clause.
    """

    source: str | None
    what: str

    @classmethod
    def of_finding(cls, finding: LoadedCaptures) -> "Culprit":
        """What a report found."""
        return cls(source=finding.source, what=finding.title)

    @property
    def line(self) -> SourceLine | None:
        """Its line; None where it is not known."""
        return SourceLine.of(self.source or "")


def culprits_of(figure: Figure, captures: Sequence[Capture]) -> tuple[Culprit, ...]:
    """The most idle time of one cause at one place in what a figure sums; and if that has no line,
    the most at a line, unless that is little. Empty where nothing of it is idle."""
    sums_ns: dict[_Place, int] = defaultdict(int)
    steps = 0
    for capture in captures:
        steps += len(figure.track(capture).steps)
        for row in figure.rows(capture):
            if row.part == "idle":
                sums_ns[row.source, row.phase, row.kind] += sum(row.ns)
    places = sorted(sums_ns, key=lambda place: -sums_ns[place])
    at_line = next((place for place in places if place[0] is not None), None)
    shown = places[:1]
    if at_line and at_line not in shown and _worth_looking(sums_ns[at_line], sums_ns[shown[0]]):
        shown.append(at_line)
    return tuple(_culprit(place, sums_ns[place] / steps) for place in shown if sums_ns[place])


def _worth_looking(ns: int, largest_ns: int) -> bool:
    return ns >= _WORTH_LOOKING * largest_ns


def _culprit(place: _Place, ns: float) -> Culprit:
    source, phase, cause = place
    label = CAUSES[cause].label if cause in CAUSES else cause
    inside = f" in {phase}" if phase else ""
    at = f", {source}" if source else ""
    return Culprit(source=source, what=f"{label}{inside}{at}: {duration(round(ns))} a step")


Verdict: TypeAlias = Literal["crossed", "too noisy", "within"]

_ORDER: Final[Sequence[Verdict]] = ("crossed", "too noisy", "within")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A figure beside its limit, both in `unit`.

    Attributes:
        unit: of all of them.
        value: the mean over the steps; of several captures the mean of their means.
        low: the lower end of its interval; None where there are too few steps or captures to say.
        high: the upper end.
        most: the limit.
        factor: of the baseline, that the limit is; None for a limit in figures.
        counted: what the interval counts.
        needed: how many of them would tell, where it is too noisy; of each side beside a
            baseline. None if no number would do.
    """

    unit: Unit
    value: float
    low: float | None
    high: float | None
    most: float
    factor: float | None
    counted: Literal["step", "run"]
    needed: int | None

    @property
    def over(self) -> float:
        """How far beyond the limit, as a share of it; below 0 within it."""
        beyond = self.value - self.most
        return beyond / self.most if self.most else (inf if beyond else 0.0)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A budget and the judgement on it.

    Attributes:
        budget: which one.
        verdict: crossed and within only if the whole interval says so.
        measured: the figure; None for a finding.
        culprits: where most of what a crossed budget limits is lost.
        found_in: how many of the captures have the finding.
    """

    budget: Budget
    verdict: Verdict
    measured: Measured | None = None
    culprits: tuple[Culprit, ...] = ()
    found_in: int = 0


def judge(
    limits: Sequence[Limit],
    findings: Sequence[Budget],
    captures: Sequence[Capture],
    baseline: Baseline | None,
) -> list[Judgement]:
    """All budgets, the worst first.

    Args:
        limits: the budgets on figures.
        findings: the budgets on findings.
        captures: what to judge; with findings if there are budgets on them.
        baseline: what it was before; None without any.

    Raises:
        CheckError: a budget compares with a baseline, which was not given or lacks the figure.
    """
    judged = [_judge_figure(limit, captures, baseline) for limit in limits]
    judged += [_judge_finding(budget, captures) for budget in findings]
    return sorted(judged, key=lambda row: (_ORDER.index(row.verdict), -_over(row)))


def _over(judged: Judgement) -> float:
    return judged.measured.over if judged.measured else inf


def _judge_figure(
    limit: Limit, captures: Sequence[Capture], baseline: Baseline | None
) -> Judgement:
    known = _known(limit, baseline) if limit.budget.of_baseline else None
    runs = [limit.figure.values(capture) for capture in captures]
    middle = mean_step(runs)
    most = limit.most if known is None else limit.most * known.value
    if known is None or not known.value:
        needed = _more(needed_for(runs, abs(middle.value - most)), middle.count)
        interval = Interval(low=middle.low, high=middle.high, counted=middle.unit, needed=needed)
    else:
        interval = ratio(known, runs, limit.most)
    verdict = _verdict(interval, most, strict=limit.budget.strict)
    measured = Measured(
        unit=limit.figure.unit,
        value=middle.value,
        low=interval.low,
        high=interval.high,
        most=most,
        factor=limit.most if known else None,
        counted=interval.counted,
        needed=interval.needed if verdict == "too noisy" else None,
    )
    culprits = culprits_of(limit.figure, captures) if verdict == "crossed" else ()
    return Judgement(budget=limit.budget, verdict=verdict, measured=measured, culprits=culprits)


def _verdict(interval: Interval, most: float, *, strict: bool) -> Verdict:
    if interval.low is None or interval.high is None:
        return "too noisy"
    if interval.low > most or (strict and interval.low == most):
        return "crossed"
    if interval.high < most or (not strict and interval.high == most):
        return "within"
    return "too noisy"


def _more(needed: int | None, count: int) -> int | None:
    """At least one more than there are: these did not do."""
    return None if needed is None else max(needed, count + 1)


def _known(limit: Limit, baseline: Baseline | None) -> Known:
    text, name = limit.budget.quoted, limit.figure.name
    if baseline is None:
        raise CheckError(f"{text} needs a baseline", "Name its file, or a report, with --baseline")
    known = baseline.known(limit.figure)
    if known is None:
        seen = f"{text}: the baseline {baseline.name} has no {name}"
        advice = "If the program is right as it is, write it anew" if baseline.again else ""
        raise CheckError(seen, advice, baseline.again)
    return known


def _judge_finding(budget: Budget, captures: Sequence[Capture]) -> Judgement:
    """A finding is a matter of thresholds: it is there, or not, where all captures agree."""
    first = [_first(budget.rule, capture) for capture in captures]
    there = [finding for finding in first if finding is not None]
    verdict: Verdict = "too noisy"
    if len(there) in (0, len(captures)):
        verdict = "crossed" if there else "within"
    culprits = tuple(map(Culprit.of_finding, there[:1]))
    return Judgement(budget=budget, verdict=verdict, culprits=culprits, found_in=len(there))


def _first(rule: str | None, capture: Capture) -> LoadedCaptures | None:
    """The largest finding of a kind; None without one."""
    if capture.findings is None:
        seen = f"the report.json of {capture.name} has no list of findings"
        advice = "Analyse the report again; it writes a new one"
        raise CheckError(seen, advice, "nsysflow analyze REPORT")
    return next((finding for finding in capture.findings if finding.rule == rule), None)
