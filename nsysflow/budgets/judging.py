"""Is a figure within its limit, beyond it, or too noisy to say? (docs/spec.md §20)"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, Literal, TypeAlias

from nsysflow.base.errors import CheckError
from nsysflow.budgets.baseline import Baseline, Known
from nsysflow.budgets.beside import Interval, beside
from nsysflow.budgets.culprit import Culprit, culprits_of
from nsysflow.budgets.figures import Unit
from nsysflow.budgets.grammar import Budget
from nsysflow.budgets.limits import Limit
from nsysflow.compare.captures import Capture, Found
from nsysflow.compare.typical import needed_for, typical

Verdict: TypeAlias = Literal["crossed", "too noisy", "within"]

_ORDER: Final[Sequence[Verdict]] = ("crossed", "too noisy", "within")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A figure beside its limit, both in `unit`.

    Attributes:
        unit: of all of them.
        value: the typical step's.
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
class Judged:
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
) -> list[Judged]:
    """All budgets, the worst first.

    Args:
        limits: the budgets on figures.
        findings: the budgets on findings.
        captures: what to judge; with findings if there are budgets on them.
        baseline: what it was before; None without any.

    Raises:
        CheckError: a budget compares with a baseline, which was not given or lacks the figure.
    """
    judged = [_judge_figure(each, captures, baseline) for each in limits]
    judged += [_judge_finding(each, captures) for each in findings]
    return sorted(judged, key=lambda each: (_ORDER.index(each.verdict), -_over(each)))


def _over(judged: Judged) -> float:
    return judged.measured.over if judged.measured else inf


def _judge_figure(limit: Limit, captures: Sequence[Capture], baseline: Baseline | None) -> Judged:
    known = _known(limit, baseline) if limit.budget.of_baseline else None
    runs = [limit.figure.values(each) for each in captures]
    found = typical(runs)
    most = limit.most if known is None else limit.most * known.value
    if known is None or not known.value:
        needed = _more(needed_for(runs, abs(found.value - most)), found.count)
        interval = Interval(low=found.low, high=found.high, counted=found.unit, needed=needed)
    else:
        interval = beside(known, runs, limit.most)
    verdict = _verdict(interval, most, strict=limit.budget.strict)
    measured = Measured(
        unit=limit.figure.unit,
        value=found.value,
        low=interval.low,
        high=interval.high,
        most=most,
        factor=limit.most if known else None,
        counted=interval.counted,
        needed=interval.needed if verdict == "too noisy" else None,
    )
    culprits = culprits_of(limit.figure, captures) if verdict == "crossed" else ()
    return Judged(budget=limit.budget, verdict=verdict, measured=measured, culprits=culprits)


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


def _judge_finding(budget: Budget, captures: Sequence[Capture]) -> Judged:
    """A finding is a matter of thresholds: it is there, or not, where all captures agree."""
    found = [_first(budget.rule, each) for each in captures]
    there = [each for each in found if each is not None]
    verdict: Verdict = "too noisy"
    if len(there) in (0, len(captures)):
        verdict = "crossed" if there else "within"
    culprits = tuple(map(Culprit.of_finding, there[:1]))
    return Judged(budget=budget, verdict=verdict, culprits=culprits, found_in=len(there))


def _first(rule: str | None, capture: Capture) -> Found | None:
    """The largest finding of a kind; None without one."""
    if capture.findings is None:
        seen = f"the report.json of {capture.name} has no list of findings"
        advice = "Analyse the report again; it writes a new one"
        raise CheckError(seen, advice, "nsysflow analyze REPORT")
    return next((each for each in capture.findings if each.rule == rule), None)
