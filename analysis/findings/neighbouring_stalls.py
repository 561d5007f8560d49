"""Stalls of neighbouring lines as one: who mends one of these lines mends them all."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from nsysflow.analysis.findings.launching_lines import CLOSE, PART
from nsysflow.analysis.findings.stall_findings import Stalls
from nsysflow.base.names import SourceLine

Placed = tuple[Stalls, SourceLine]
"""Stalls and their line."""


def neighbours(places: Sequence[Stalls]) -> Iterator[list[Stalls]]:
    """The places, those of neighbouring lines of a function together, in order."""
    placed: list[Placed] = []
    for one in places:
        at = SourceLine.of(one.source)
        if at is None or not at.function or one.via:
            yield [one]
        else:
            placed.append((one, at))
    ordered = sorted(placed, key=lambda pair: (_function(pair), pair[1].number))
    for _, lines in groupby(ordered, key=_function):
        yield from _parts([*lines])


def _function(placed: Placed) -> tuple[str, str, str]:
    """The function around the line, and the phase in which it is called."""
    stalls, at = placed
    return at.file, at.function, stalls.phase


def _parts(lines: Sequence[Placed]) -> Iterator[list[Stalls]]:
    """The lines of a function, in order, in parts that span no more than `PART`."""
    part = [lines[0]]
    for one in lines[1:]:
        number, first, last = one[1].number, part[0][1].number, part[-1][1].number
        if number - last > CLOSE or number - first >= PART:
            yield [stalls for stalls, _ in part]
            part = []
        part.append(one)
    yield [stalls for stalls, _ in part]


def together(places: Sequence[Stalls]) -> Stalls:
    """Neighbours as one place."""
    if len(places) == 1:
        return places[0]
    most = max(places, key=lambda one: one.size_ns)
    lines = [at for at in map(SourceLine.of, (one.source for one in places)) if at]
    first, last = lines[0], lines[-1]
    return replace(
        most,
        line=f"{first.file}:{first.number}-{last.number} in {first.function}",
        removals=tuple(removal for one in places for removal in one.removals),
        calls=sum(one.calls for one in places),
        copies=sum(one.copies for one in places),
        largest_bytes=max(one.largest_bytes for one in places),
        steps=max(one.steps for one in places),
        blocked_ns=sum(one.blocked_ns for one in places),
        idle_ns=sum(one.idle_ns for one in places),
        process=most.process if len({one.process for one in places}) == 1 else None,
    )
