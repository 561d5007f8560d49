"""Which long steps come back: every k-th step, or every so many seconds (spec §8.18)."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, perm
from statistics import median
from typing import Final

FEWEST: Final = 4
"""Four pauses have three distances. Two of them agree too easily."""

JITTER_STEPS: Final = 2
"""A pause may come a step early and the next one a step late …"""

JITTER_PCT: Final = 10
"""… or, where a clock decides, within this share of the usual distance in time."""

BY_CHANCE: Final = 1e-3
"""Of pauses at random steps, so few runs may look as regular. In 100 runs of random pauses none
should."""

MOST_TRIED: Final = 60
"""Of more pauses at a place, the first ones begin rows: a row goes on to the last pause anyway."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Pauses at equal distances.

    Attributes:
        members: which of the pauses, in order.
        every: the usual distance, in steps.
        chance: how many such rows the same number of pauses would form at random steps.
    """

    members: tuple[int, ...]
    every: int
    chance: float


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
        if best is None or best.chance > BY_CHANCE:
            break
        members = tuple(left[at] for at in best.members)
        found.append(Row(members=members, every=best.every, chance=best.chance))
        left = [at for at in left if at not in members]
    return found


def _rank(row: Row) -> tuple[float, int, int]:
    """The least accidental row first, then that with the smaller distance, then the first."""
    return row.chance, row.every, row.members[0]


def _rows(steps: Sequence[int], times_ns: Sequence[int], run: range, step_ns: int) -> Iterator[Row]:
    """All rows of four pauses or more: by steps, and by the clock."""
    by_clock = [at / max(1, step_ns) for at in times_ns]
    for places, by_step in ((steps, True), (by_clock, False)):
        for members in dict.fromkeys(_chains(places, by_step=by_step)):
            distances = [places[b] - places[a] for a, b in pairwise(members)]
            usual = median(distances)
            off = max(abs(distance - usual) for distance in distances)
            length = len(run) if by_step else max(len(run), ceil(by_clock[-1] - by_clock[0]) + 1)
            chance = _chance(len(steps), len(members), length, 2 * off + 1)
            whole = _spans(steps, members, run)
            numbers = [steps[at] for at in members]
            yield Row(
                members=members,
                every=round(median(b - a for a, b in pairwise(numbers))),
                chance=chance * (usual / length if whole else 1),
            )


def _chains(places: Sequence[float], *, by_step: bool) -> Iterator[tuple[int, ...]]:
    """Each row of four pauses or more that goes on from two pauses, in both directions."""
    count = len(places)
    for first in range(min(count, MOST_TRIED)):
        for second in range(first + 1, min(count, first + MOST_TRIED)):
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
    first, past = bisect_left(places, due - reach), bisect_right(places, due + reach)
    near = (at for at in range(first, past) if (at > last) == (distance > 0) and at != last)
    return min(near, key=lambda at: (abs(places[at] - due), at), default=None)


def _spans(steps: Sequence[int], members: Sequence[int], run: range) -> bool:
    """Whether the row begins and ends no further from the ends of the run than its distances."""
    widest = max(steps[b] - steps[a] for a, b in pairwise(members)) + JITTER_STEPS
    return steps[members[0]] - run[0] <= widest and run[-1] - steps[members[-1]] <= widest


def _chance(pauses: int, members: int, length: int, slots: float) -> float:
    """How many rows of so many members one expects among pauses at random steps.

    A row is a first step, a distance of 2 or more, and `slots` for each member from the third on;
    each of its steps has a pause with the chance of that.
    """
    most = (length - 1) // (members - 1)
    rows = sum(length - (members - 1) * distance for distance in (2, most)) * (most - 1) / 2
    return rows * slots ** (members - 2) * perm(pauses, members) / perm(length, members)
