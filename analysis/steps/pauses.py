"""Which long steps come back: every k-th step, or every so many seconds (spec §8.18)."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf, isqrt, lgamma, log
from statistics import median
from typing import Final

FEWEST: Final = 4
"""Four pauses have three distances. Two of them agree too easily."""

OF_OTHER_SIZE: Final = 4
"""Four pauses or more that are all more than so many times as long as any other are of another
kind: a draw on the CPU took 75 ms every 20 steps, a read-back 3 ms every 10 (H100, 2026-11-26)."""

JITTER_STEPS: Final = 2
"""A pause may come a step early and the next one a step late …"""

JITTER_PCT: Final = 10
"""… or, where a clock decides, within this share of the usual distance in time."""

BY_CHANCE: Final = 1e-3
"""Of pauses at random steps, so few runs may look as regular. In 100 runs of random pauses none
should."""

MOST_TRIED: Final = 60
"""Of more pauses at a place, the first ones begin rows: a row goes on to the last pause anyway."""

MOST_SEEN: Final = 2_000_000
"""Rows of very many pauses begin at fewer, so that together they look at no more than these."""

FEWEST_TRIED: Final = 8
"""So many first pauses begin rows in any case."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Pauses at equal distances.

    Attributes:
        members: which of the pauses, in order.
        every: the usual distance, in steps.
        log_chance: the logarithm of how many such rows the same number of pauses would form at
            random steps; of thousands of pauses no float holds the number itself.
    """

    members: tuple[int, ...]
    every: int
    log_chance: float


def recurring(
    steps: Sequence[int], starts_ns: Sequence[int], run: range, step_ns: int
) -> list[Row]:
    """The rows of pauses that come back, the least accidental first; a pause is in one at most.

    Args:
        steps: the numbers of the steps with a pause at one place, rising.
        starts_ns: when these steps start.
        run: the numbers of all steps after start-up.
        step_ns: how long a typical step takes.
    """
    left = list(range(len(steps)))
    found: list[Row] = []
    while len(left) >= FEWEST:
        numbers, times = [steps[at] for at in left], [starts_ns[at] for at in left]
        best = min(_rows(numbers, times, run, step_ns), key=_rank, default=None)
        if best is None or best.log_chance > log(BY_CHANCE):
            break
        members = tuple(left[at] for at in best.members)
        found.append(Row(members=members, every=best.every, log_chance=best.log_chance))
        taken = frozenset(members)
        left = [at for at in left if at not in taken]
    return found


def size_classes(excess_ns: Sequence[int | None]) -> list[list[int]]:
    """Which pauses at a place are of one size, the longest first; of each size in order.

    Args:
        excess_ns: how much longer each step takes; null where a window cuts it.
    """
    known = [ns for ns in excess_ns if ns is not None]
    if len(known) < len(excess_ns):
        return [[*range(len(excess_ns))]]
    longest_first = sorted(range(len(known)), key=lambda at: -known[at])
    classes: list[list[int]] = [[]]
    for at in longest_first:
        mine = classes[-1]
        if len(mine) >= FEWEST and known[mine[-1]] > OF_OTHER_SIZE * known[at]:
            classes.append([])
        classes[-1].append(at)
    return [sorted(one) for one in classes]


def _rank(row: Row) -> tuple[float, int, int]:
    """The least accidental row first, then that with the smaller distance, then the first."""
    return row.log_chance, row.every, row.members[0]


def _rows(steps: Sequence[int], times_ns: Sequence[int], run: range, step_ns: int) -> Iterator[Row]:
    """All rows of four pauses or more: by steps, and by the clock."""
    by_clock = [at / max(1, step_ns) for at in times_ns]
    for places, by_step in ((steps, True), (by_clock, False)):
        for members in dict.fromkeys(_chains(places, by_step=by_step)):
            distances = [places[b] - places[a] for a, b in pairwise(members)]
            usual = median(distances)
            off = max(abs(distance - usual) for distance in distances)
            length = len(run) if by_step else max(len(run), ceil(by_clock[-1] - by_clock[0]) + 1)
            log_chance = _log_chance(len(steps), len(members), length, 2 * off + 1)
            whole = _spans(steps, members, run)
            numbers = [steps[at] for at in members]
            yield Row(
                members=members,
                every=round(median(b - a for a, b in pairwise(numbers))),
                log_chance=log_chance + (log(usual / length) if whole else 0),
            )


def _chains(places: Sequence[float], *, by_step: bool) -> Iterator[tuple[int, ...]]:
    """Each row of four pauses or more that goes on from two pauses, in both directions."""
    count = len(places)
    tried = max(FEWEST_TRIED, min(MOST_TRIED, isqrt(MOST_SEEN // count)))
    for first in range(min(count, tried)):
        for second in range(first + 1, min(count, first + tried)):
            distance = places[second] - places[first]
            if distance < 2:
                continue
            reach = JITTER_STEPS if by_step else JITTER_PCT * distance / 100
            members = [first, second]
            while (at := _next(places, members[-1], distance, reach)) is not None:
                members.append(at)
            while (at := _next(places, members[0], -distance, reach)) is not None:
                members.insert(0, at)
            if len(members) >= FEWEST:
                yield tuple(members)


def _next(places: Sequence[float], last: int, distance: float, reach: float) -> int | None:
    """The pause that is nearest to where the next one is due; None where none is in reach."""
    due = places[last] + distance
    behind = bisect_left(places, due)
    nearest: int | None = None
    for at in (behind - 1, behind):
        if not 0 <= at < len(places) or at == last or (at > last) != (distance > 0):
            continue
        off = abs(places[at] - due)
        if off <= reach and (nearest is None or off < abs(places[nearest] - due)):
            nearest = at
    return nearest


def _spans(steps: Sequence[int], members: Sequence[int], run: range) -> bool:
    """Whether the row begins and ends no further from the ends of the run than its distances."""
    widest = max(steps[b] - steps[a] for a, b in pairwise(members)) + JITTER_STEPS
    return steps[members[0]] - run[0] <= widest and run[-1] - steps[members[-1]] <= widest


def _log_chance(pauses: int, members: int, length: int, slots: float) -> float:
    """The logarithm of how many rows of so many members one expects among pauses at random steps.

    A row is a first step, a distance of 2 or more, and `slots` for each member from the third on;
    each of its steps has a pause with the chance of that.
    """
    most = (length - 1) // (members - 1)
    rows = sum(length - (members - 1) * distance for distance in (2, most)) * (most - 1) / 2
    if rows <= 0:
        return -inf
    ways = _log_ways(pauses, members) - _log_ways(length, members)
    return log(rows) + (members - 2) * log(slots) + ways


def _log_ways(count: int, taken: int) -> float:
    """The logarithm of in how many ways so many of `count` can be taken, in order."""
    return lgamma(count + 1) - lgamma(count - taken + 1)
