"""Findings as people read them: two lines each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nsysflow.analysis.findings.finding import EXTENTS, Valued
from nsysflow.analysis.findings.findings import Findings
from nsysflow.analysis.findings.host_functions import code_of
from nsysflow.analysis.findings.other_loop import OTHER_LOOP
from nsysflow.analysis.findings.plan import WORTH_PCT
from nsysflow.base.units import between, duration, number, percent
from nsysflow.report.ranks import LateRank
from nsysflow.report.results import Results

OTHERS_SHARE: Final = 0.9
"""Steps that were not recorded are named beside those without the profiler if they take less than
this share of them: more is shorter about them than the profiler explains."""

WORTH_SAYING: Final = 0.99
"""Steps that are not recorded and hardly shorter save as much."""

NEARLY_ALL: Final = 0.9
"""Of more steps than this share it is not said how many they are."""

COVERED: Final = 3
"""Where a finding alone saves this many times what the changes above leave of it, the page gives
both."""

APART: Final = 1.5
"""A saving of which the ends are this far apart is printed as `about`; `explain` has the ends."""

MOST_TYPED: Final = 8
"""So many reports are typed out in a command."""


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """A finding in two lines.

    Attributes:
        number: as `nsysflow explain` takes it.
        saving: `save 542 us (13 %)`, `save up to …`.
        title: what happens and where.
        change: the first thing to try; where a finding above says so, too, with its number.
        steps: `in 2 of 5 steps`; empty where nearly all have it, or none are judged.
    """

    number: int
    saving: str
    title: str
    change: str
    steps: str


@dataclass(frozen=True, kw_only=True)
class Suggestions:
    """The first findings of a run.

    Attributes:
        caption: what savings are of, and what all changes save together.
        rows: the findings; may be empty.
        more: where the rest is, and each of them in full; empty without findings.
    """

    caption: str
    rows: tuple[Suggestion, ...]
    more: str


def suggestions(results: Results, limit: int) -> Suggestions:
    """What to change first."""
    findings = results.found
    several = len(results.reports) > 1
    changes = [valued.finding.change[0] for valued in findings.valued]
    rows = tuple(
        Suggestion(
            number=index,
            saving=_saving_in_turn(valued),
            title=f"{valued.report}: {valued.finding.title}" if several else valued.finding.title,
            change=_change(changes, index),
            steps=_steps(valued, findings.steps) if findings.of_steps else "",
        )
        for index, valued in enumerate(findings.valued[:limit], start=1)
    )
    return Suggestions(caption=_caption(results), rows=rows, more=_more(results, len(rows)))


def _change(changes: Sequence[str], number: int) -> str:
    """What the finding of a number says to change first; `as for 1: …` where one above says so."""
    change = changes[number - 1]
    above = changes.index(change) + 1
    return change if above == number else f"as for {above}: {change}"


def saving_of(valued: Valued) -> str:
    """What a finding saves: `save up to 2.10 ms (38 %)`."""
    if valued.later_ns:
        return f"saves nothing until launches are fixed, then up to {duration(valued.later_ns)}"
    if not valued.high_ns:
        return "not estimated"
    if valued.finding.rule == OTHER_LOOP:  # a step of another loop says little beside these steps
        return f"save up to {percent(valued.pct)} of all time"
    return f"{_saving(valued)} ({shares_of(valued)})"


def _saving(valued: Valued) -> str:
    """`save 2.10 ms`, `save about 2.10 ms`."""
    plain = valued.plain
    rough = plain is not None and plain.high_ns > APART * plain.low_ns
    about = "about " if rough and valued.is_figure and valued.finding.method == "replay" else ""
    return f"save {about}{amount_of(valued)}"


def amount_of(valued: Valued) -> str:
    """How much that is: `1.53 to 6.01 ms` where there are two ends, `up to 2.10 ms`."""
    said = valued.said
    if valued.is_figure:
        return f"{EXTENTS[valued.finding.method]}{duration(said.high_ns)}"
    return between(said.low_ns, said.high_ns) if said.low_ns else f"up to {duration(said.high_ns)}"


def shares_of(valued: Valued) -> str:
    """The same of the step: `9.2 to 36 %`."""
    said = valued.said
    low, high = percent(said.low_pct), percent(said.high_pct)
    two = not valued.is_figure and said.low_ns and low != high
    return f"{low.removesuffix(' %')} to {high}" if two else high


def _saving_in_turn(valued: Valued) -> str:
    """The same in a plan: a finding of which the changes above leave little says what it saves
    alone, as it may be the easier change."""
    if not is_covered(valued):
        return saving_of(valued)
    left = "nothing more" if valued.said.high_pct < WORTH_PCT else _saving(valued)
    return f"{left} (alone {duration(valued.alone_ns)})"


def is_covered(valued: Valued) -> bool:
    """Whether the changes above leave little of what a finding saves alone."""
    if valued.finding.changes is None or valued.later_ns:
        return False
    left = valued.said
    return left.high_pct < WORTH_PCT or valued.alone_ns >= COVERED * left.high_ns


def _caption(results: Results) -> str:
    """The caption of the plan: which step its savings are of, and what they add up to."""
    findings = results.found
    whole = "per step, each after those above" if findings.of_steps else "of the whole window"
    parts = [whole, *_step_of_savings(findings, results.unrecorded_step_ns)]
    if findings.ranks_alone:
        parts.append("each rank by itself: their collectives cannot be replayed together")
    return "; ".join(parts)


def _is_slowed(findings: Findings) -> bool:
    """Whether recording made the step longer by so much that it is worth saying."""
    step_ns, quiet_ns = findings.step_ns, findings.undisturbed_step_ns
    return findings.of_steps and quiet_ns <= WORTH_SAYING * step_ns


def late_ranks(findings: Findings) -> dict[str, LateRank]:
    """The late ranks by their report."""
    slowed = _is_slowed(findings)
    return {
        one.finding.culprit: LateRank(
            undisturbed_ns=one.alone_ns if slowed else None,
            code=code_of(one.finding.source) or one.finding.phase,
            by_recording=one.finding.by_recording,
        )
        for one in (*findings.valued, *findings.slower_hosts)
        if one.finding.rule == "straggler"
    }


def _step_of_savings(findings: Findings, unrecorded_ns: int | None) -> list[str]:
    """The step before and after all changes, and whether it is without the profiler; with what
    other steps take where these do more than the profiler explains."""
    step_ns, quiet_ns = findings.step_ns, findings.undisturbed_step_ns
    slowed = _is_slowed(findings)
    estimated = findings.plain_estimate is not None  # the first line has the recorded step
    about = "about " * (slowed and estimated)
    recorded, by = "", "without the profiler"
    if not estimated:
        recorded = f" (recorded {duration(step_ns)})"
    if unrecorded_ns and unrecorded_ns <= OTHERS_SHARE * quiet_ns:
        by = "by replay"  # which has not found all of what recording adds
        recorded = f" (recorded {duration(step_ns)}, steps not recorded {duration(unrecorded_ns)})"
    without = f" {by}{recorded}" * slowed
    if findings.together_ns is not None:
        times = f"{duration(quiet_ns)} → {duration(quiet_ns - findings.together_ns)}"
        here = (one for one in findings.valued if one.finding.rule != OTHER_LOOP)
        left_out = any(not one.counts and one.pct >= WORTH_PCT for one in here)
        return [f"{'replayed' if left_out else 'all'} together {about}{times}{without}"]
    return [f"of {about}{duration(quiet_ns)}{without}"] if slowed else []


def _steps(valued: Valued, steps: int) -> str:
    """In how many of the judged steps it is; nothing if it is in nearly all, or beside them, or if
    its title says so."""
    have = min(valued.finding.steps, steps)
    if valued.finding.beside or have > NEARLY_ALL * steps:
        return ""
    said = f"in {number(have)} of {number(steps)} steps"
    return "" if said in valued.finding.title else said


def _more(results: Results, shown: int) -> str:
    """Where the rest of the findings is, and how to see one in full."""
    if not shown:
        return ""
    left = len(results.found.valued) - shown
    rest = f"{number(left)} more: --table findings; " if left else ""
    return f"{rest}in full: nsysflow explain 1 {_run(results)}"


def _run(results: Results) -> str:
    """The run as it is typed after a command; of so many reports that they fill the screen, how to
    type it."""
    typed = len(results.origin.typed)
    return results.again if typed <= MOST_TYPED else f"and the same {number(typed)} reports"
