"""All findings of a report or a run: every rule asked, each finding valued, the largest saving
first.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from nsysflow.analysis.findings.explanation import effort_of, explanations
from nsysflow.analysis.findings.finding import Finding, Valued
from nsysflow.analysis.findings.frameworks import advised
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules import (
    LAST_RESORT,
    LAST_RESORT_OF_IDLE,
    RULES,
    RULES_OF_RUN,
)
from nsysflow.analysis.findings.run_saving import RunReplays
from nsysflow.analysis.findings.saving import PlainEstimate, Replays
from nsysflow.analysis.findings.soundness import sound
from nsysflow.analysis.findings.stall_findings import TAKES_TURNS, compared_with_replay
from nsysflow.analysis.ranks.digest import digest
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared
from nsysflow.analysis.trace import Note

FINDINGS: Final = TableSchema(
    """One row per thing to change, in the order in which to act; `finding` numbers them. A saving
    is what is left to save once the changes above are made, of a step (the mean after start-up, of
    the slowest rank; without the profiler's share where a plain step is known), or of the window
    where no steps are judged. `method` is `replay`
    where the change itself was replayed, so that low and high are the same, `bound` where
    `saving_high_ns` is the most that it can be, and `least` where both are the least that it is:
    the change also makes other kernels faster, by what no trace tells. `culprit` is the call,
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
            "what the change saves at most, per step, after those above it; with the method least, "
            "what it saves at least",
        ),
        Column("saving_pct", pl.Float64(), "the most that it saves, of a step"),
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
            "lightning, fsdp; cuda where none is seen",
        ),
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
            share, where a plain step is known.
        plain_estimate: how long a step takes without the profiler, where none was timed.
        of_steps: whether savings are per step.
        steps: how many steps were judged.
        report: the report with the slowest steps.
        notes: what was left out, and why.
        ranks_alone: whether the ranks of a run were judged each by itself, as their collectives
            could not be replayed together.
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


def find(subject: JudgedReport) -> Findings:
    """What to change in a program, as a plan: what saves much for little comes first. A recording
    that cannot be judged has no findings."""
    replays = Replays(subject)
    if subject.whole.failed_checks:
        return _found(replays, ())
    return _found(replays, _every(replays, [one for rule in RULES for one in rule(subject)]))


def _found(replays: Replays, every: Iterable[Valued]) -> Findings:
    """Those of the findings whose savings can be, and what they are of."""
    subject = replays.subject
    valued, notes = sound(every)
    return Findings(
        valued=valued,
        together_ns=_together_ns(valued),
        step_ns=subject.run_step_ns,
        typical_step_ns=subject.step_ns,
        undisturbed_step_ns=replays.step_ns,
        of_steps=subject.of_steps,
        steps=subject.steps,
        report=subject.report,
        notes=notes,
        plain_estimate=replays.plain_estimate,
    )


def _every(replays: Replays, asked: Iterable[Finding]) -> tuple[Valued, ...]:
    """Of what rules found in a report, or in all ranks of a run, what is worth a line, in order.

    What may be worth a line is valued by a replay of the judged steps, first alone, then after the
    changes above it. What saves less than `WORTH_PCT` of a step is left out. A report that is
    GPU-bound never ends without a word on its kernels: the last resort says what helps, not what it
    saves.
    """
    subject = replays.subject
    worth_ns = max(1.0, WORTH_PCT / 100 * replays.step_ns)  # nothing is not worth a line
    large = sorted((one for one in asked if one.size_ns >= worth_ns), key=lambda one: -one.size_ns)
    kept = [
        _valued(one, replays, replayed=index < replays.most)
        for index, one in enumerate(large[:MOST_REPLAYED])
    ]
    worthy = [
        one for one in _without_hidden(kept) if one.alone_ns >= max(worth_ns, one.finding.worth_ns)
    ]
    plan = _planned(worthy, replays, worth_ns)
    hidden = [one for one in kept if one.finding.shortens_compute and one.alone_ns < worth_ns]
    behind: tuple[Valued, ...] = ()
    if any(one.finding.rule == "launch-bound" for one in plan):
        plan = _with_hidden(plan, hidden, replays, worth_ns)
    else:
        behind = _ranked(_behind_the_host(hidden, replays, subject))
    plan = _with_idle(plan, replays)
    last = plan[-1].step_after_ns if plan else replays.step_ns
    if not any(one.finding.makes_kernels_faster for one in (*plan, *behind)):
        behind += tuple(_valued(one, replays) for one in LAST_RESORT(subject))
    return (*plan, *(replace(one, step_after_ns=last) for one in behind))


BEFORE_GRAPHS: Final = (
    "sync-in-loop",
    "scalar-readback",
    "pageable-copy",
    "blocking-pinned-copy",
    "allocator-churn",
)
"""A CUDA graph contains no wait and no allocation: these changes come before one."""


def _planned(valued: Iterable[Valued], replays: Replays, worth_ns: float) -> tuple[Valued, ...]:
    """The findings in the order in which to act, each with what it saves after those above it.
    Those that save nothing then come last."""
    ordered = _graphs_after_waits(_ranked(valued))
    plan = _in_turn(ordered, replays)
    late = [one for one in plan if one.high_ns < worth_ns]
    if not late or plan[len(plan) - len(late) :] == late:
        return tuple(plan)
    left = [one for one in plan if one.high_ns >= worth_ns]
    return tuple(_in_turn([*left, *late], replays))


def _with_hidden(
    plan: Sequence[Valued], hidden: Sequence[Valued], replays: Replays, worth_ns: float
) -> tuple[Valued, ...]:
    """The plan with the faster kernels behind it that save something once the host keeps up."""
    both = _in_turn([*plan, *_ranked(hidden[:MOST_BEHIND])], replays)
    kept = [one for at, one in enumerate(both) if at < len(plan) or one.high_ns >= worth_ns]
    return tuple(kept if len(kept) == len(both) else _in_turn(kept, replays))


def _graphs_after_waits(ranked: Iterable[Valued]) -> list[Valued]:
    """The findings, launches behind the waits and allocations that a graph cannot contain."""
    plan: list[Valued] = []
    graphs: list[Valued] = []
    for one in ranked:
        (graphs if one.finding.rule == "launch-bound" else plan).append(one)
    firsts = [at for at, one in enumerate(plan) if one.finding.rule in BEFORE_GRAPHS]
    for one in graphs:
        by_worth = sum(one.worth <= other.worth for other in plan)
        plan.insert(max(by_worth, 1 + max(firsts, default=-1)), one)
    return plan


def _in_turn(plan: Iterable[Valued], replays: Replays) -> list[Valued]:
    """Each finding with what it saves once those before it are changed, and the step then."""
    made: list[Changes] = []
    replayed_ns, saved_ns, busy_ns = 0, 0, replays.step_ns
    done = []
    for one in plan:
        changes = one.finding.changes
        if changes is not None:
            made.append(changes)
            with_it_ns = max(replayed_ns, replays.saving_ns(Changes.together(made)) or 0)
            high_ns = with_it_ns - replayed_ns
            if one.finding.is_bound_of_kernels and 100 * high_ns >= WORTH_PCT * one.step_ns:
                most_ns = replays.most_saved_ns(changes, Changes.together(made[:-1])) or 0
                high_ns = max(high_ns, most_ns)
            if not one.finding.exact and one.finding.at_most_ns:
                high_ns = min(high_ns, one.finding.at_most_ns)
            replayed_ns = with_it_ns
        else:
            high_ns = one.alone_ns
        # what moves into the step from elsewhere is no work of its own
        busy_ns = min(busy_ns, replays.busy_ns(Changes.together(made)))
        # what is not replayed may be the GPU's own time
        left_ns = one.step_ns - saved_ns - (busy_ns if one.counts else 0)
        high_ns = max(0, min(high_ns, left_ns))
        saved_ns += high_ns if one.counts else 0
        done.append(
            replace(
                one,
                low_ns=0 if one.finding.method == "bound" else high_ns,
                high_ns=high_ns,
                step_after_ns=one.step_ns - saved_ns,
                busy_after_ns=busy_ns,
            )
        )
    return done


def _without_hidden(valued: list[Valued]) -> Iterator[Valued]:
    """The findings without those of all waits at once that say no more than those of each wait."""
    alone_ns = sum(one.alone_ns for one in valued if one.finding.waits and not one.finding.joint)
    for one in valued:
        if not one.finding.joint or one.alone_ns > TAKES_TURNS * alone_ns:
            yield one


def _valued(finding: Finding, replays: Replays, *, replayed: bool = True) -> Valued:
    """A finding with its saving, replayed if it can be, and if that is worth its time."""
    finding = _of_its_process(advised(finding, replays.subject.frameworks), replays.subject)
    saved_ns, step_ns = None, replays.step_ns
    if finding.changes is not None and replayed:
        saved_ns = replays.saving_ns(finding.changes)
        # where the GPU is the limit at first; else the host's launches come before its kernels
        worth = saved_ns is not None and 100 * saved_ns >= WORTH_PCT * step_ns
        if saved_ns is not None and worth and finding.is_bound_of_kernels:
            saved_ns = max(saved_ns, replays.most_saved_ns(finding.changes, Changes()) or 0)
    if saved_ns is None:
        # no replay: what is lost there is the most that can be saved
        saved_ns = finding.at_most_ns if finding.changes is None else finding.size_ns
        saved_ns = min(saved_ns, step_ns)
        finding = replace(finding, exact=False, changes=None)
    elif finding.waits and not finding.joint:
        finding = compared_with_replay(finding, saved_ns)
    if finding.beside and replays.part.options.unrecorded_step_ns is not None:
        saved_ns = min(saved_ns, replays.longer_ns)
    if finding.changes is not None:
        saved_ns = min(saved_ns, step_ns - replays.busy_ns(finding.changes))
    saved_ns = max(0, saved_ns)
    if not finding.exact and finding.at_most_ns:
        saved_ns = min(saved_ns, finding.at_most_ns)
    return Valued(
        finding=finding,
        low_ns=0 if finding.method == "bound" else saved_ns,
        high_ns=saved_ns,
        alone_ns=saved_ns,
        step_ns=step_ns,
        step_after_ns=step_ns - saved_ns,
        report=replays.subject.report,
    )


def _of_its_process(finding: Finding, subject: JudgedReport) -> Finding:
    """A finding that says which process it is of, where several use a GPU; in no more steps than
    are judged."""
    steps = finding.steps if finding.beside else min(finding.steps, subject.steps)
    several = subject.timeline.events.users["process"].n_unique() > 1
    if not several or finding.process is None:
        return replace(finding, steps=steps)
    return replace(finding, steps=steps, title=f"{finding.title} (process {finding.process})")


def _behind_the_host(
    hidden: Sequence[Valued], replays: Replays, subject: JudgedReport
) -> Iterator[Valued]:
    """Faster kernels that alone save next to nothing, since the host is the limit: with what they
    save once it keeps up, its launches being one CUDA graph a step. Alone they save what they do,
    so that they come last."""
    worth_ns = WORTH_PCT / 100 * replays.step_ns
    if not hidden or not subject.of_steps:
        return
    no_limit = Changes(graphs=tuple(subject.timeline.step_paths["joined"].unique().sort()))
    without_ns = replays.saving_ns(no_limit)
    for one in hidden[:MOST_BEHIND]:
        changes = one.finding.changes or Changes()
        both_ns = replays.saving_ns(Changes.together([no_limit, changes]))
        if both_ns is None or without_ns is None or both_ns - without_ns < worth_ns:
            continue
        yield replace(one, low_ns=0, high_ns=0, later_ns=both_ns - without_ns)


def _with_idle(plan: Sequence[Valued], replays: Replays) -> tuple[Valued, ...]:
    """The plan with the idle time that its findings do not explain, where that is much."""
    explained_ns = sum(one.alone_ns for one in plan if explanations()[one.finding.rule].causes)
    both = [*plan]
    for found in LAST_RESORT_OF_IDLE(replays.subject, explained_ns):
        one = _valued(found, replays)
        both.insert(sum(one.worth <= other.worth for other in plan), one)
    return tuple(plan if len(both) == len(plan) else _in_turn(both, replays))


def _together_ns(plan: Sequence[Valued]) -> int | None:
    """What all changes of a plan save. None where fewer than two are counted in its steps."""
    counted = [one for one in plan if one.counts]
    return sum(one.high_ns for one in counted) if len(counted) > 1 else None


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
    compared = [] if ranks is None else [*_compared(subjects, ranks)]
    looked_at = _looked_at(subjects, {one.culprit for _, one in compared})
    together = None if ranks is None else RunReplays.of(subjects, ranks)
    if together is not None:
        return _found_together(looked_at, together, compared)
    alone = _found_alone(looked_at, compared)
    return replace(alone, ranks_alone=ranks is not None and ranks.several)


def _compared(
    subjects: Sequence[JudgedReport], ranks: Ranks
) -> Iterator[tuple[JudgedReport, Finding]]:
    """What only all ranks together show, each with the report that values it. A rank that has more
    to compute than the others is no straggler beside that."""
    blamed: set[tuple[str, int | None, int | None]] = set()
    for rule in RULES_OF_RUN:
        for subject, one in rule(subjects, ranks):
            rank = (one.culprit, one.process, one.device)
            if rank not in blamed:
                blamed.add(rank)
                yield subject, one


def _found_together(
    subjects: Iterable[JudgedReport],
    together: RunReplays,
    compared: Iterable[tuple[JudgedReport, Finding]],
) -> Findings:
    """The plan of a run: each place once, of the report in which most is lost there."""
    asked = [(subject, one) for subject in subjects for rule in RULES for one in rule(subject)]
    asked = sorted([*asked, *compared], key=lambda pair: -pair[1].size_ns)
    report_of: dict[tuple[str, ...], str] = {}
    kept = [
        one
        for subject, one in asked
        if report_of.setdefault(_place_of(one), subject.report) == subject.report
    ]
    found = _found(together, _every(together, kept))
    named = (
        replace(one, report=report_of.get(_place_of(one.finding), one.report))
        for one in found.valued
    )
    return replace(found, valued=tuple(named))


def _found_alone(
    subjects: Iterable[JudgedReport], compared: Sequence[tuple[JudgedReport, Finding]]
) -> Findings:
    """The findings of reports that cannot be replayed together; what only all show is a bound."""
    each = [find(subject) for subject in subjects]
    slowest = max(each, key=lambda found: found.step_ns)
    worth_ns = WORTH_PCT / 100 * slowest.undisturbed_step_ns
    valued = [
        _valued(replace(one, changes=None, at_most_ns=one.at_most_ns or one.size_ns), Replays(of))
        for of, one in compared
    ]
    compared_worth = [one for one in valued if one.high_ns >= worth_ns]
    if len(each) == 1 and not compared_worth:
        return slowest
    every = [one for found in each for one in found.valued] + compared_worth
    notes = tuple(note for found in each for note in found.notes)
    return replace(slowest, valued=tuple(_each_place_once(_ranked(every))), notes=notes)


def _place_of(found: Finding) -> tuple[str, ...]:
    return found.rule, found.phase, found.source, found.via


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


def _ranked(valued: Iterable[Valued]) -> tuple[Valued, ...]:
    """What saves most for what it takes first; of equal ones by name."""

    def rank(one: Valued) -> tuple[float, int, str, str]:
        return -one.worth, -one.later_ns, one.finding.rule, one.finding.title

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
            "alone_ns": one.alone_ns,
            "later_ns": one.later_ns,
            "step_after_ns": one.step_after_ns,
            "effort": effort_of(one.finding.rule),
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
            low_ns = 0 if one.finding.method == "bound" else more_ns
            left.append(replace(one, low_ns=low_ns, high_ns=more_ns, alone_ns=more_ns, later_ns=0))
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
