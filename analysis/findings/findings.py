"""All findings of a report or a run: every rule asked, each finding valued, the largest saving
first.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import polars as pl

from nsysflow.analysis.findings.finding import Finding, Valued
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules import LAST_RESORT, RULES, RULES_OF_RUN
from nsysflow.analysis.findings.saving import Replays
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.replay.whatif import WhatIf, whatif
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared
from nsysflow.base.units import duration

FINDINGS: Final = TableSchema(
    """One row per thing to change, the largest saving first; `finding` numbers them. Savings are of
    a recorded step that is judged, of the slowest rank, or of the window where no steps are judged.
    `method` is `replay` where the change itself was replayed, so that low and high are the same,
    and `bound` where `saving_high_ns` is the most that it can be. `culprit` is the call, kernel or
    stream that it is about. `steps` is how many of the judged steps have it. Savings overlap: they
    are never summed. `process` and `device` are null where it is of several.""",
    [
        *shared("report"),
        Column("process", pl.Int64(), "the process's id (pid); empty where it is of several"),
        Column("device", pl.Int32(), "the GPU's index; empty where it is of several"),
        Column("finding", pl.Int64(), "its number, as `nsysflow explain` takes it"),
        Column(
            "rule",
            pl.String(),
            "what kind of finding it is; `nsysflow explain RULE` says what to know of it",
        ),
        Column("title", pl.String(), "what happens and where"),
        Column(
            "phase",
            pl.String(),
            "the NVTX ranges in which it happens; empty outside all ranges, and where it is in "
            "several places",
        ),
        *shared("source via"),
        Column("culprit", pl.String(), "the call, kernel or stream that it is about"),
        Column(
            "saving_low_ns",
            pl.Int64(),
            "what the change saves at least, per step; of the window where no steps are judged",
        ),
        Column(
            "saving_high_ns",
            pl.Int64(),
            "what the change saves at most, per step; savings overlap, so do not sum them",
        ),
        Column("saving_pct", pl.Float64(), "the most that it saves, of a step"),
        Column(
            "method",
            pl.String(),
            "replay: the change itself was replayed; bound: the most that the saving can be",
        ),
        Column("steps", pl.Int64(), "how many of the judged steps have it"),
        Column("evidence", pl.String(), "the numbers that it rests on"),
        Column("change", pl.String(), "what to do, in the order in which to try it"),
    ],
)


WORTH_PCT: Final = 1.0
"""A finding that cannot save this share of a step is not worth a line: equal steps of one capture
differ by as much."""

MOST_REPLAYED: Final = 16
"""The largest findings are replayed; those behind them lose less than each of these."""

MOST_BEHIND: Final = 4
"""So many findings that only count once the host keeps up: each takes another replay."""

FEW_REPORTS: Final = 4
"""Of more ranks only some are looked at: a replay takes seconds for each."""

TAKES_TURNS: Final = 2
"""Waits hide each other if all together save more than twice what they save alone, or one saves
less than half of what is lost there."""

TAKEN_OVER: Final = (
    "the replay saves less than half of that: another wait takes over, or it hides other work"
)


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The findings of a report.

    Attributes:
        valued: the largest saving first; of several reports, each place once.
        together_ns: what a step takes less with all changes that can be replayed; None where there
            are fewer than two.
        step_ns: the recorded step that all savings are of; the judged window where no steps are
            judged.
        of_steps: whether savings are per step.
        steps: how many steps were judged.
        report: the report with the slowest steps.
    """

    valued: tuple[Valued, ...]
    together_ns: int | None
    step_ns: int
    of_steps: bool
    steps: int
    report: str


def find(subject: JudgedReport) -> Findings:
    """What to change in a program, the largest saving first.

    What may be worth a line is valued by a replay of the judged steps. What saves less than
    `WORTH_PCT` of a step is left out. A report that is GPU-bound never ends without a word on its
    kernels: the last resort says what helps, not what it saves.
    """
    replays = Replays(subject)
    worth_ns = max(1.0, WORTH_PCT / 100 * subject.step_ns)  # nothing is not worth a line
    asked = [one for rule in RULES for one in rule(subject) if one.size_ns >= worth_ns]
    asked.sort(key=lambda one: -one.size_ns)
    kept = [
        _valued(one, replays if index < replays.most else None, subject)
        for index, one in enumerate(asked[:MOST_REPLAYED])
    ]
    valued = _ranked(
        one for one in _without_hidden(kept) if one.high_ns >= max(worth_ns, one.finding.worth_ns)
    )
    valued += _ranked(_behind_the_host(kept, replays, subject))
    if not any(one.finding.makes_kernels_faster for one in valued):
        valued += tuple(_valued(one, replays, subject) for one in LAST_RESORT(subject))
    return Findings(
        valued=valued,
        together_ns=_together_ns([one.finding for one in valued], replays),
        step_ns=subject.step_ns,
        of_steps=subject.of_steps,
        steps=subject.steps,
        report=subject.report,
    )


def _without_hidden(valued: list[Valued]) -> Iterator[Valued]:
    """The findings without those of all waits at once that say no more than those of each wait."""
    alone_ns = sum(one.high_ns for one in valued if one.finding.waits and not one.finding.joint)
    for one in valued:
        if not one.finding.joint or one.high_ns > TAKES_TURNS * alone_ns:
            yield one


def _valued(finding: Finding, replays: Replays | None, subject: JudgedReport) -> Valued:
    """A finding with its saving, replayed if it can be."""
    saved_ns = None
    if finding.changes is not None and replays is not None:
        saved_ns = replays.saving_ns(finding.changes)
    if saved_ns is None:
        # no replay: what is lost there is the most that can be saved
        most_ns = finding.at_most_ns if finding.changes is None else finding.size_ns
        bound = replace(finding, exact=False, changes=None)
        step_ns = subject.step_ns + (most_ns if finding.beside else 0)
        high_ns = min(most_ns, step_ns)
        return Valued(
            finding=bound, low_ns=0, high_ns=high_ns, step_ns=step_ns, report=subject.report
        )
    saved_ns = max(0, saved_ns)
    if finding.waits and not finding.joint and saved_ns < finding.size_ns / TAKES_TURNS:
        finding = replace(finding, evidence=(*finding.evidence, TAKEN_OVER))
    if not finding.exact and finding.at_most_ns:
        saved_ns = min(saved_ns, finding.at_most_ns)
    low_ns = saved_ns if finding.exact else 0
    return Valued(
        finding=finding,
        low_ns=low_ns,
        high_ns=saved_ns,
        step_ns=subject.step_ns,
        report=subject.report,
    )


def _behind_the_host(
    kept: Iterable[Valued], replays: Replays, subject: JudgedReport
) -> Iterator[Valued]:
    """Faster kernels that alone save next to nothing, since the host is the limit: with what they
    save once it keeps up, its launches being one CUDA graph a step. Alone they save what they do,
    so that they come last."""
    worth_ns = WORTH_PCT / 100 * subject.step_ns
    hidden = [
        (one, one.finding.changes)
        for one in kept
        if one.finding.makes_kernels_faster and one.high_ns < worth_ns
    ][:MOST_BEHIND]
    if not hidden or not subject.of_steps:
        return
    no_limit = Changes(graphs=tuple(subject.timeline.step_paths["joined"].unique().sort()))
    without_ns = replays.saving_ns(no_limit)
    for one, changes in hidden:
        both_ns = replays.saving_ns(Changes.together([no_limit, changes or Changes()]))
        if both_ns is None or without_ns is None or both_ns - without_ns < worth_ns:
            continue
        yield replace(one, later_ns=both_ns - without_ns)


def _together_ns(findings: Iterable[Finding], replays: Replays) -> int | None:
    """What all changes save at once: savings overlap, so this is one more replay and no sum. None
    where fewer than two are replayed."""
    changes = [one.changes for one in findings if one.changes is not None]
    if len(changes) < 2:
        return None
    saved_ns = replays.saving_ns(Changes.together(changes))
    return None if saved_ns is None else max(0, saved_ns)


def find_of_run(subjects: Sequence[JudgedReport], ranks: Ranks | None = None) -> Findings:
    """The findings of the reports of a run: those of some reports, and what only all of them
    together show. Of a place that several reports have, the largest saving counts.

    Args:
        subjects: the reports to look at.
        ranks: of the whole run; None where these are all of its reports.
    """
    if ranks is None and len(subjects) > 1:
        ranks = Ranks.of([subject.whole.digest for subject in subjects])
    compared = [
        (of, one) for rule in RULES_OF_RUN if ranks is not None for of, one in rule(subjects, ranks)
    ]
    late = {one.culprit for _, one in compared}
    each = [find(subject) for subject in _looked_at(subjects, late)]
    slowest = max(each, key=lambda found: found.step_ns)
    worth_ns = WORTH_PCT / 100 * slowest.step_ns
    valued = [_valued(one, Replays(of), of) for of, one in compared]
    every = [one for found in each for one in found.valued]
    every += [one for one in valued if one.high_ns >= worth_ns]
    return replace(slowest, valued=tuple(_each_place_once(_ranked(every))))


def _each_place_once(ranked: Iterable[Valued]) -> Iterator[Valued]:
    """The findings without those that another report has too, with a larger saving."""
    reports: dict[tuple[str, str, str, str], str] = {}
    for one in ranked:
        found = one.finding
        place = (found.rule, found.phase, found.source, found.via)
        if reports.setdefault(place, one.report) == one.report:
            yield one


def _looked_at(subjects: Sequence[JudgedReport], late: Collection[str]) -> list[JudgedReport]:
    """All subjects if they are few; of many the slowest and the late ones. Ranks do the same work,
    and what holds up the straggler holds up all."""
    if len(subjects) <= FEW_REPORTS:
        return [*subjects]
    slowest = max(subjects, key=lambda subject: subject.step_ns)
    stragglers = [one for one in subjects if one.timeline.trace.report in late and one != slowest]
    return [slowest, *stragglers]


def _ranked(valued: Iterable[Valued]) -> tuple[Valued, ...]:
    """The largest saving first; of equal ones by name."""

    def rank(one: Valued) -> tuple[float, int, str, str]:
        return -one.rank_ns, -one.later_ns, one.finding.rule, one.finding.title

    return tuple(sorted(valued, key=rank))


def findings_table(found: Findings) -> pl.DataFrame:
    """The FINDINGS table."""
    rows = [
        {
            "report": one.report,
            "process": one.finding.process,
            "device": one.finding.device,
            "finding": number,
            "rule": one.finding.rule,
            "title": one.finding.title,
            "phase": one.finding.phase,
            "source": one.finding.source or None,
            "via": one.finding.via or None,
            "culprit": one.finding.culprit,
            "saving_low_ns": one.low_ns,
            "saving_high_ns": one.high_ns,
            "saving_pct": one.pct,
            "method": one.finding.method,
            "steps": one.finding.steps,
            "evidence": "; ".join([*_later(one), *one.finding.evidence]),
            "change": "; ".join(one.finding.change),
        }
        for number, one in enumerate(found.valued, start=1)
    ]
    return pl.DataFrame(rows, schema=FINDINGS)


def _later(one: Valued) -> Iterator[str]:
    """That the host hides what a finding saves."""
    if one.later_ns:
        yield f"up to {duration(one.later_ns)} once the host keeps up; until then next to nothing"


_MOST_OPS: Final = 500_000
"""Of a longer report the finding that is then the largest is not looked for: it takes seconds."""


class _Analysed(Protocol):
    """What is read of an analysis."""

    @property
    def timeline(self) -> Timeline: ...
    @property
    def subject(self) -> JudgedReport: ...
    @property
    def found(self) -> Findings: ...


def replay_and_next(analysis: _Analysed, changes: Changes) -> tuple[WhatIf, Valued | None]:
    """What changes give, and the finding that saves most beside them; None where none does, and of
    a long report.

    Raises:
        SelectionError: there is no step of those that the options select.
        UnknownName: a phase, source line, kernel or call is not in the report.
    """
    found = whatif(analysis.timeline, changes)
    if len(analysis.timeline.events.ops) > _MOST_OPS:
        return found, None
    return found, largest_after(analysis.subject, analysis.found, changes)


def largest_after(subject: JudgedReport, found: Findings, changes: Changes) -> Valued | None:
    """The finding that saves most beside `changes`, with what it then saves; None where none does.

    Args:
        subject: the judged part of a report.
        found: its findings.
        changes: what is changed already.

    Raises:
        UnknownName: a phase, source line, kernel or call is not in the report.
    """
    replays = Replays(subject)
    changed_ns = replays.saving_ns(changes)
    if changed_ns is None:
        return None
    left = []
    for one in found.valued:
        if one.finding.changes is None:
            continue
        both_ns = replays.saving_ns(Changes.together([changes, one.finding.changes]))
        more_ns = 0 if both_ns is None else both_ns - changed_ns
        if more_ns > 0:
            low_ns = more_ns if one.finding.method == "replay" else 0
            left.append(replace(one, low_ns=low_ns, high_ns=more_ns, later_ns=0))
    return max(left, key=lambda one: one.rank_ns, default=None)


TABLES: Final = (
    Table(
        name="findings",
        schema=FINDINGS,
        scope="run",
        json_key="findings",
        complete=True,
        filled_by="no change is known that would save 1 % of a step or more",
        shown="finding saving_high_ns saving_pct title rule phase source steps method report",
    ),
)
