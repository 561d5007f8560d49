"""`host-round-trip`: a function that waits for the GPU or copies, and then computes on the host.

A metric in numpy, boxes sorted in Python, a batch stacked and copied: rules see the wait, the copy
and the code apart. Who moves the function's work to the GPU is rid of all of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from nsysflow.analysis.findings.finding import Finding, in_function
from nsysflow.analysis.findings.host_functions import CHANGE_OF_WAIT, code_of, is_loop
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.stall_findings import MANY_CALLS, Stalls, stalls_of
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.units import number

HOST_ROUND_TRIP: Final = "host-round-trip"

_HOST: Final = ("data-loading", "host-code")
_STALLS: Final = ("sync-in-loop", "scalar-readback", "pageable-copy", "blocking-pinned-copy")

ON_THE_GPU: Final = "do its work on the GPU, where the data is, and copy only the result"
RARELY: Final = "do it less often, or some steps later, or on another thread"


def with_round_trips(subject: JudgedReport, found: Iterable[Finding]) -> list[Finding]:
    """The findings, with those of one function's waits, copies and host code as one."""
    left = [*found]
    for function in _functions(left):
        places = [
            stalls
            for stalls in stalls_of(subject, "read", "sync", "fetch", "pageable", "pinned")
            if in_function(stalls.source) == function
        ]
        if not places or is_loop(subject, function):
            continue
        sure = Changes(removed=tuple(removal for one in places for removal in one.removals))
        parts = [one for one in left if _is_part(one, function, sure)]
        left = [one for one in left if one not in parts]
        left.append(_round_trip(subject, places, parts, sure))
    return left


def _functions(found: Sequence[Finding]) -> Iterator[str]:
    """The functions whose own code holds the GPU up, each once. Code in a phase that loads data is
    a loader's."""
    computing = (one for one in found if one.rule in _HOST and one.change != CHANGE_OF_WAIT)
    named = (in_function(one.source) for one in computing if " in " in one.source)
    loaders = {in_function(one.source) for one in found if one.rule == "data-loading" and one.phase}
    yield from dict.fromkeys(name for name in named if name not in loaders)


def _is_part(one: Finding, function: str, sure: Changes) -> bool:
    """Whether a finding is of this function alone."""
    if one.joint:
        return one.changes is not None and {*one.changes.removed} <= {*sure.removed}
    return one.rule in (*_HOST, *_STALLS) and in_function(one.source) == function


def _round_trip(
    subject: JudgedReport, places: Sequence[Stalls], parts: Sequence[Finding], sure: Changes
) -> Finding:
    """One finding instead of the parts: it saves what the waits do, and at most all of it."""
    blocked_ns, idle_ns = sum(one.blocked_ns for one in places), sum(one.idle_ns for one in places)
    single = [one for one in parts if not one.joint]
    code = [one for one in single if one.rule in _HOST]
    most, code_ns = max(code, key=lambda one: one.size_ns), sum(one.size_ns for one in code)
    waits = [one for one in places if one.what in ("read", "sync")]
    calls = round(sum(one.calls for one in waits) / subject.steps)
    counted = f"{number(calls)} waits{subject.a_step}" if calls >= MANY_CALLS else "waits"
    kinds = [*([counted] if waits else []), *(["copies"] if len(waits) < len(places) else [])]
    return Finding(
        rule=HOST_ROUND_TRIP,
        title=f"{', '.join(kinds)} and host code in {code_of(most.source)} hold the GPU up",
        change=_change(single) if len(waits) == len(places) else (ON_THE_GPU, RARELY),
        evidence=(
            f"its {'waits' if waits else 'copies'} block the host for {subject.spent(blocked_ns)}"
            f" and cost {subject.idle(idle_ns)}",
            *(text for one in single if one.table == "copies" for text in one.evidence),
            *(text for one in code for text in one.evidence[:-1]),  # the last is of its own saving
        ),
        table="host_stacks",
        size_ns=idle_ns + code_ns,
        steps=max(one.steps for one in single),
        changes=Changes.together([sure, *(one.changes for one in single if one.changes)]),
        sure=sure,
        ends=("only the waits go", "all that it does goes"),
        at_most_ns=blocked_ns + code_ns if all(one.at_most_ns for one in code) else 0,
        process=most.process,
        phase=most.phase,
        source=most.source,
        via=most.via,
    )


def _change(parts: Sequence[Finding]) -> tuple[str, ...]:
    """What to do where nothing large is copied: first what helps against the largest wait."""
    waits = (one for one in parts if one.rule in _STALLS)
    largest = max(waits, key=lambda one: one.size_ns, default=None)
    return (*largest.change, RARELY) if largest else (RARELY, ON_THE_GPU)
