"""All findings of a report or a run: every rule asked, each finding valued, the largest saving
first, and savings that cannot be left out.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, Valued, in_function
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.plan import (
    WORTH_PCT,
    least_ns,
    leaves_work,
    plan_of,
    ranked,
    together_ns,
    value,
)
from nsysflow.analysis.findings.rules import GPU_RULES, RULES, RULES_OF_RUN, Rule
from nsysflow.analysis.findings.rules.managed_memory import kernels_wait
from nsysflow.analysis.findings.saving import PlainEstimate, Replays
from nsysflow.analysis.findings.stall_findings import with_round_trips
from nsysflow.analysis.frames.parallel import side_by_side
from nsysflow.analysis.ranks.digest import digest
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared
from nsysflow.analysis.trace import Note, NoteKind

if TYPE_CHECKING:
    from nsysflow.analysis.findings.run_saving import RunReplays

FINDINGS: Final = TableSchema(
    """One row per thing to change, in the order in which to act; `finding` numbers them. A saving
    is what is left to save once the changes above are made, of a step (the mean after start-up, of
    the slowest rank, without the profiler's share as timed or by estimate), or of the window as
    recorded where no steps are judged. `method` is `replay`
    where the change itself was replayed; then low and high are the same, but for reads in a loop of
    their own and for `host-round-trip`: low is what goes with the waits, high what goes with the
    whole loop or function. It is `bound` where
    `saving_high_ns` is the most that it can be, and `least` where both are the least that it is:
    the change also makes other kernels faster, by what no trace tells. Where the plain step is only
    estimated, a range and a bound hold for the whole estimate; other savings, and `step_after_ns`,
    are of its middle. `culprit` is the call,
    kernel or stream that it is about. `steps` is how many of the judged steps have it. `process`
    and `device` are null where it is of several.""",
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
            "what the change saves at least, per step, after those above it; of the window where "
            "no steps are judged",
        ),
        Column(
            "saving_high_ns",
            pl.Int64(),
            "what it saves at most, likewise; with the method least, what it saves at least",
        ),
        Column("saving_pct", pl.Float64(), "the most that it saves, of a step"),
        Column(
            "plain_saving_low_ns",
            pl.Int64(),
            "the least that it may save, if no plain step was timed and the saving depends much on "
            "what recording cost; else empty",
        ),
        Column("plain_saving_high_ns", pl.Int64(), "the most that it may save; empty likewise"),
        Column("alone_ns", pl.Int64(), "what it saves at most as the only change"),
        Column(
            "later_ns",
            pl.Int64(),
            "what it saves at most once the host keeps up, where the host hides it; else 0",
        ),
        Column("step_after_ns", pl.Int64(), "the step with all changes up to this one"),
        Column(
            "effort",
            pl.String(),
            "what the change takes: an argument, a line, some lines of the program, to restructure "
            "it, or other",
        ),
        Column(
            "method",
            pl.String(),
            "replay: the change itself was replayed; bound: the most that the saving can be; "
            "least: the least that it is",
        ),
        Column("steps", pl.Int64(), "how many of the judged steps have it"),
        Column("evidence", pl.String(), "the numbers that it rests on"),
        Column("change", pl.String(), "what to do, in the order in which to try it"),
        Column(
            "frameworks",
            pl.String(),
            "for programs of which frameworks that is: pytorch, jax, cupy, tensorflow, trainer, "
            "lightning, fsdp, engine; rocm on AMD's GPUs; cuda where none is seen",
        ),
    ],
)


FEW_REPORTS: Final = 4
"""Of more ranks only some are looked at: a replay takes seconds for each."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The findings of a report.

    Attributes:
        valued: the largest saving first; of several reports, each place once.
        together_ns: what a step takes less with all changes that can be replayed; None where there
            are fewer than two.
        step_ns: the recorded step, the mean after start-up; the judged window where no steps are
            judged.
        typical_step_ns: the mean of the judged steps.
        undisturbed_step_ns: the step that all savings are of: `step_ns` without the profiler's
            share, as timed or by estimate.
        plain_estimate: how long a step takes without the profiler, where none was timed.
        of_steps: whether savings are per step.
        steps: how many steps were judged.
        report: the report with the slowest steps.
        notes: what was left out, and why.
        ranks_alone: whether the ranks of a run were judged each by itself, as their collectives
            could not be replayed together.
        slower_hosts: the ranks that come late, but perhaps only because recording slows their
            hosts more; also those that cost too little without the profiler to be in `valued`.
    """

    valued: tuple[Valued, ...]
    together_ns: int | None
    step_ns: int
    typical_step_ns: int
    undisturbed_step_ns: int
    of_steps: bool
    steps: int
    report: str
    notes: tuple[Note, ...] = ()
    plain_estimate: PlainEstimate | None = None
    ranks_alone: bool = False
    slower_hosts: tuple[Valued, ...] = ()


def find(subject: JudgedReport) -> Findings:
    """What to change in a program, as a plan: what saves much for little comes first. A recording
    that cannot be judged has no findings."""
    replays = Replays(subject)
    if subject.whole.failed_checks:
        return _found(replays, ())
    return _found(replays, plan_of(replays, _asked(subject)))


def nothing_found(subjects: Sequence[JudgedReport]) -> Findings:
    """Of reports that cannot be judged together: how long the slowest one's steps take."""
    return max((_found(Replays(one), ()) for one in subjects), key=lambda found: found.step_ns)


def _asked(subject: JudgedReport) -> list[Finding]:
    """What all rules find; those about kernels are not asked where kernels mostly wait."""
    rules = [rule for rule in RULES if rule not in GPU_RULES] if kernels_wait(subject) else RULES
    at_once = None if subject.whole.scratch is None else 1  # where memory is short
    found = side_by_side((partial(_all_of, rule, subject) for rule in rules), at_once=at_once)
    return with_round_trips(subject, chain.from_iterable(found))


def _all_of(rule: Rule, subject: JudgedReport) -> list[Finding]:
    return [*rule(subject)]


def _found(replays: Replays, every: Iterable[Valued]) -> Findings:
    """Those of the findings whose savings can be, and what they are of."""
    subject = replays.subject
    valued, notes = sound(every)
    return Findings(
        valued=valued,
        together_ns=together_ns(valued),
        step_ns=subject.run_step_ns,
        typical_step_ns=subject.step_ns,
        undisturbed_step_ns=replays.step_ns,
        of_steps=subject.of_steps,
        steps=subject.steps,
        report=subject.report,
        notes=notes,
        plain_estimate=replays.plain_estimate,
    )


def find_of_run(subjects: Sequence[JudgedReport], ranks: Ranks | None = None) -> Findings:
    """The findings of the reports of a run, and what only all of them together show.

    Args:
        subjects: the reports to look at.
        ranks: of the whole run; None where these are all of its reports.
    """
    if ranks is None and (len(subjects) > 1 or subjects[0].has_ranks):
        ranks = Ranks.of([digest(subject.whole) for subject in subjects])
    if any(subject.whole.failed_checks for subject in subjects):
        ranks = None  # what is not valid shows nothing of the others
    together = None
    if ranks is not None:
        from nsysflow.analysis.findings.run_saving import RunReplays  # a report alone needs none

        together = RunReplays.of(subjects, ranks)
    added_ns = 0 if together is None else together.added_ns
    compared = [] if ranks is None else [*_compared(subjects, ranks, added_ns)]
    looked_at = _looked_at(subjects, {one.culprit for _, one in compared})
    if together is not None:
        return _found_together(looked_at, together, compared)
    alone = _found_alone(looked_at, compared)
    return replace(alone, ranks_alone=ranks is not None and ranks.several)


def _compared(
    subjects: Sequence[JudgedReport], ranks: Ranks, added_ns: int
) -> Iterator[tuple[JudgedReport, Finding]]:
    """What only all ranks together show, each with the report that values it. A rank that has more
    to compute than the others is no straggler beside that."""
    blamed: set[tuple[str, int | None, int | None]] = set()
    for rule in RULES_OF_RUN:
        for subject, one in rule(subjects, ranks, added_ns):
            rank = (one.culprit, one.process, one.device)
            if rank not in blamed:
                blamed.add(rank)
                yield subject, one


def _found_together(
    subjects: Iterable[JudgedReport],
    together: "RunReplays",
    compared: Sequence[tuple[JudgedReport, Finding]],
) -> Findings:
    """The plan of a run: each place once, of the report in which most is lost there."""
    asked = [(subject, one) for subject in subjects for one in _asked(subject)]
    asked = sorted([*asked, *compared], key=lambda pair: -pair[1].size_ns)
    report_of: dict[tuple[str, ...], str] = {}
    kept = [
        one
        for subject, one in asked
        if report_of.setdefault(_place_of(one), subject.report) == subject.report
    ]
    found = _found(together, plan_of(together, kept))
    named = (
        replace(one, report=report_of.get(_place_of(one.finding), one.report))
        for one in found.valued
    )
    slower = tuple(value(one, together) for _, one in compared if one.by_recording)
    return replace(found, valued=tuple(named), slower_hosts=slower)


def _found_alone(
    subjects: Iterable[JudgedReport], compared: Sequence[tuple[JudgedReport, Finding]]
) -> Findings:
    """The findings of reports that cannot be replayed together; what only all show is a bound."""
    each = [find(subject) for subject in subjects]
    slowest = max(each, key=lambda found: found.step_ns)
    worth_ns = WORTH_PCT / 100 * slowest.undisturbed_step_ns
    valued = [
        value(replace(one, changes=None, at_most_ns=one.at_most_ns or one.size_ns), Replays(of))
        for of, one in compared
    ]
    compared_worth = [one for one in valued if one.high_ns >= worth_ns]
    if len(each) == 1 and not compared_worth:
        return slowest
    every = [one for found in each for one in found.valued] + compared_worth
    notes = tuple(note for found in each for note in found.notes)
    plan = tuple(_of_slowest(_each_place_once(ranked(every)), slowest))
    return replace(slowest, valued=plan, together_ns=together_ns(plan), notes=notes)


def _of_slowest(plan: Iterable[Valued], slowest: Findings) -> Iterator[Valued]:
    """The findings with the step after each: that of the slowest report, which only its own
    findings make shorter. All others count in no step."""
    step_ns = slowest.undisturbed_step_ns
    busy_ns = min((one.busy_after_ns for one in slowest.valued), default=0)
    for one in plan:
        counts = one.counts and one.report == slowest.report
        step_ns -= one.high_ns if counts else 0
        of_host = not one.counts and leaves_work(one.finding)
        left_ns = max(0, step_ns - busy_ns) if of_host else step_ns
        high_ns = min(one.high_ns, left_ns) if not counts else one.high_ns
        yield replace(one, high_ns=high_ns, step_after_ns=step_ns, busy_after_ns=busy_ns)


def _place_of(found: Finding) -> tuple[str, ...]:
    """What two reports have alike in a finding. Samples meet other lines of a function in each."""
    source = in_function(found.source) if found.is_sampled else found.source
    return found.rule, found.phase, source, found.via


def _each_place_once(ranked: Iterable[Valued]) -> Iterator[Valued]:
    """The findings without those that another report has too, with a larger saving."""
    reports: dict[tuple[str, ...], str] = {}
    for one in ranked:
        if reports.setdefault(_place_of(one.finding), one.report) == one.report:
            yield one


def _looked_at(subjects: Sequence[JudgedReport], late: Collection[str]) -> list[JudgedReport]:
    """All subjects if they are few; of many the slowest and the late ones. Ranks do the same work,
    and what holds up the straggler holds up all."""
    if len(subjects) <= FEW_REPORTS:
        return [*subjects]
    slowest = max(subjects, key=lambda subject: subject.run_step_ns)
    stragglers = [one for one in subjects if one.timeline.trace.report in late and one != slowest]
    return [slowest, *stragglers]


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
            "saving_low_ns": one.said.low_ns,
            "saving_high_ns": one.said.high_ns,
            "saving_pct": one.said.high_pct,
            "plain_saving_low_ns": one.plain.low_ns if one.plain else None,
            "plain_saving_high_ns": one.plain.high_ns if one.plain else None,
            "alone_ns": one.alone_ns,
            "later_ns": one.later_ns,
            "step_after_ns": one.step_after_ns,
            "effort": one.finding.effort,
            "method": one.finding.method,
            "steps": one.finding.steps,
            "evidence": "; ".join(one.finding.evidence),
            "change": "; ".join(one.finding.change),
            "frameworks": "; ".join(one.finding.frameworks),
        }
        for number, one in enumerate(found.valued, start=1)
    ]
    return pl.DataFrame(rows, schema=FINDINGS)


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
            sure_ns = None
            if one.finding.sure is not None:
                with_sure = Changes.together([changes, one.finding.sure])
                sure_ns = (replays.saving_ns(with_sure) or 0) - changed_ns
            low_ns = least_ns(one.finding, sure_ns, more_ns)
            here = replace(one, low_ns=low_ns, high_ns=more_ns, later_ns=0)
            left.append(replace(here, alone_low_ns=low_ns, alone_ns=more_ns))
    return max(left, key=lambda one: one.rank_ns, default=None)


TABLES: Final = (
    Table(
        name="findings",
        schema=FINDINGS,
        scope="run",
        json_key="findings",
        complete=True,
        filled_by="no change is known that would save 1 % of a step or more",
        shown=(
            "finding saving_low_ns saving_high_ns title saving_pct phase rule source steps method"
            " report"
        ),
    ),
)


def sound(plan: Iterable[Valued]) -> tuple[tuple[Valued, ...], tuple[Note, ...]]:
    """The findings whose savings can be, and a note for each other one. The steps of those that are
    left are without it."""
    kept: list[Valued] = []
    notes: list[Note] = []
    unsound_ns = 0
    before_ns = None
    for one in plan:
        step_after_ns = one.step_after_ns + unsound_ns
        if problem := problem_of(one, before_ns):
            unsound_ns += (before_ns or one.step_ns) - step_after_ns
            notes.append(_unsound_note(one, problem))
            continue
        kept.append(replace(one, step_after_ns=step_after_ns))
        before_ns = step_after_ns
    return tuple(kept), tuple(notes)


def problem_of(one: Valued, before_ns: int | None) -> str:
    """What cannot be of a finding's saving; empty where it can be.

    Args:
        one: the finding.
        before_ns: the step with all changes before it; None for the first one.
    """
    before_ns = one.step_ns if before_ns is None else before_ns
    if not 0 <= one.low_ns <= one.high_ns:
        return "it is negative"
    if max(one.high_ns, one.alone_ns, one.later_ns) > one.step_ns:
        return "it is longer than the step"
    if one.step_after_ns > before_ns:
        return "the step gets longer"
    if one.counts and one.step_after_ns < one.busy_after_ns:
        return "the step gets shorter than the work in it"
    return ""


def _unsound_note(one: Valued, problem: str) -> Note:
    return Note(
        NoteKind.UNSOUND_FINDING,
        f"a finding of rule {one.finding.rule} is left out, as its saving cannot be: {problem}."
        " Please report that as a fault of nsysflow",
    )
