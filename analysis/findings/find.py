"""All findings of a report: every rule asked, each finding valued, the largest saving first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from nsysflow.analysis.findings.finding import Finding, Valued
from nsysflow.analysis.findings.rules import RULES
from nsysflow.analysis.findings.saving import Replays
from nsysflow.analysis.findings.subject import Subject
from nsysflow.analysis.replay.changes.declared import Changes

WORTH_PCT: Final = 1.0
"""A finding that cannot save this share of a step is not worth a line: equal steps of one capture
differ by as much."""

MOST_REPLAYED: Final = 12
"""The largest findings are replayed; those behind them lose less than each of these."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """The findings of a report.

    Attributes:
        valued: the largest saving first.
        together_ns: what a step takes less with all changes that can be replayed; None where there
            are fewer than two.
        step_ns: the recorded step that all savings are of; the judged window where no steps are
            judged.
        of_steps: whether savings are per step.
        steps: how many steps were judged.
        report: the report that they are of.
    """

    valued: tuple[Valued, ...]
    together_ns: int | None
    step_ns: int
    of_steps: bool
    steps: int
    report: str


def find(subject: Subject) -> Found:
    """What to change in a program, the largest saving first.

    What may be worth a line is valued by a replay of the judged steps. What saves less than
    `WORTH_PCT` of a step is left out.
    """
    replays = Replays(subject)
    worth_ns = WORTH_PCT / 100 * subject.step_ns
    asked = [one for rule in RULES for one in rule(subject) if one.size_ns >= worth_ns]
    asked.sort(key=lambda one: -one.size_ns)
    kept = [_valued(one, replays, subject) for one in asked[:MOST_REPLAYED]]
    valued = sorted(
        (one for one in kept if one.high_ns >= worth_ns),
        key=lambda one: (-one.rank_ns, one.finding.rule, one.finding.title),
    )
    return Found(
        valued=tuple(valued),
        together_ns=_together_ns([one.finding for one in valued], replays),
        step_ns=subject.step_ns,
        of_steps=subject.of_steps,
        steps=subject.steps,
        report=subject.timeline.trace.report,
    )


def _valued(finding: Finding, replays: Replays, subject: Subject) -> Valued:
    """A finding with its saving. Of a part of the steps, it is scaled to the mean of all."""
    if finding.changes is None:
        high_ns = min(finding.at_most_ns, subject.step_ns)
        return Valued(finding=finding, low_ns=0, high_ns=high_ns, step_ns=subject.step_ns)
    saved_ns = max(0, replays.saving_ns(finding.changes))
    low_ns = saved_ns if finding.exact else 0
    return Valued(finding=finding, low_ns=low_ns, high_ns=saved_ns, step_ns=subject.step_ns)


def _together_ns(findings: Iterable[Finding], replays: Replays) -> int | None:
    """What all changes save at once: savings overlap, so this is one more replay and no sum."""
    changes = [one.changes for one in findings if one.changes is not None]
    if len(changes) < 2:
        return None
    return max(0, replays.saving_ns(Changes.together(changes)))


def find_of_run(subjects: Sequence[Subject]) -> Found:
    """The findings of the reports of a run: those of the slowest report."""
    return max((find(subject) for subject in subjects), key=lambda found: found.step_ns)
