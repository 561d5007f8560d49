"""By how much is one sample larger? All pairwise differences, without a list of them."""

from bisect import bisect_left
from collections.abc import Sequence
from math import inf, sqrt
from typing import Final

from nsysflow.compare.significance import ALPHA, two_sided_normal

COMPLETE: Final = 0.5
"""How far from 1/2 the share of pairs is if all of `new` is larger, or all smaller."""
_FEW: Final = 100_000
"""So many differences are listed and sorted; of more, those around the one looked for."""


def half_width(base_effective: float, new_effective: float) -> float:
    """How far from 1/2 the share of pairs in which `new` is larger must be to be significant.

    Mann and Whitney's test with its correction for continuity. More than `COMPLETE`: there are too
    few steps.
    """
    pairs = base_effective * new_effective
    if not pairs:
        return inf
    deviation = sqrt((base_effective + new_effective + 1) / (12 * pairs))
    return two_sided_normal(ALPHA) * deviation + 1 / (2 * pairs)


def median_difference(base: Sequence[float], new: Sequence[float]) -> float:
    """Hodges and Lehmann's estimate: the median of all differences new - base (both sorted)."""
    pairs = len(base) * len(new)
    below, above = differences_at(base, new, ((pairs + 1) // 2, pairs // 2 + 1))
    return (below + above) / 2


def interval(base: Sequence[float], new: Sequence[float], width: float) -> tuple[float, float]:
    """The differences that the test does not exclude; `width` as of `half_width`, <= COMPLETE."""
    pairs = len(base) * len(new)
    outside = int(pairs * (COMPLETE - width))
    low, high = differences_at(base, new, (outside + 1, pairs - outside))
    return low, high


def differences_at(
    base: Sequence[float], new: Sequence[float], ranks: Sequence[int]
) -> list[float]:
    """The differences new - base (both sorted) at these ranks; the smallest has rank 1."""
    if len(base) * len(new) <= _FEW:
        listed = sorted(other - value for value in base for other in new)
        return [listed[rank - 1] for rank in ranks]
    return [_difference_at(base, new, rank) for rank in ranks]


def _difference_at(base: Sequence[float], new: Sequence[float], rank: int) -> float:
    """The difference at one rank: first and last close in on it, until few lie between them."""
    first, last = new[0] - base[-1], new[-1] - base[0]
    below, up_to = 0, len(base) * len(new)  # how many lie below `first`, and up to `last`
    halve = False
    while up_to - below > _FEW and first < last:
        share = 0.5 if halve else (rank - below) / (up_to - below)
        halve = not halve  # a guess by proportion alone may creep
        guess = first + (last - first) * share
        count, largest, smallest = _split(base, new, guess if guess < last else first)
        if count < rank:
            below, first = count, smallest
        else:
            up_to, last = count, largest
    if first == last:
        return first
    return sorted(_between(base, new, first, last))[rank - below - 1]


def _split(base: Sequence[float], new: Sequence[float], at: float) -> tuple[int, float, float]:
    """How many differences are at most `at`, the largest of them, and the smallest other one."""
    count, largest, smallest = 0, -inf, inf
    taken = 0  # of `new`; it only grows, as a larger base makes smaller differences
    for value in base:
        while taken < len(new) and new[taken] - value <= at:
            taken += 1
        count += taken
        if taken and new[taken - 1] - value > largest:
            largest = new[taken - 1] - value
        if taken < len(new) and new[taken] - value < smallest:
            smallest = new[taken] - value
    return count, largest, smallest


def _between(base: Sequence[float], new: Sequence[float], first: float, last: float) -> list[float]:
    """All differences from `first` to `last`."""
    found: list[float] = []
    start = 0
    for value in base:
        start = bisect_left(new, first, start, key=lambda other: other - value)
        for at in range(start, len(new)):
            difference = new[at] - value
            if difference > last:
                break
            found.append(difference)
    return found
