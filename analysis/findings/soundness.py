"""Whether the savings of a plan can be (spec §16.10)."""

from collections.abc import Iterable
from dataclasses import replace

from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.trace import Note, NoteKind


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
            notes.append(_note(one, problem))
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


def _note(one: Valued, problem: str) -> Note:
    return Note(
        NoteKind.UNSOUND_FINDING,
        f"a finding of rule {one.finding.rule} is left out, as its saving cannot be: {problem}."
        " Please report that as a fault of nsysflow",
    )
