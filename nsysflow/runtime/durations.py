"""How long many steps took, in little memory: their number, sum and median, and the longest."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import Final

LONGEST: Final = 64
"""So many of the longest steps are kept, each with its number."""

_PER_E: Final = 64
"""Classes of the median in each factor of e: they are 1.6 % wide."""


@dataclass(frozen=True)
class LaterSteps:
    """The steps of a process after the recording.

    Attributes:
        first: how many steps had begun before them.
        count: how many there are.
        total_ns: how long they took together, on the host.
        median_ns: how long the middle one took, within 1 %.
        longest: the longest, as (number, ns), by number.
    """

    first: int
    count: int
    total_ns: int
    median_ns: int
    longest: tuple[tuple[int, int], ...]


class Durations:
    """Collects the durations of steps."""

    def __init__(self, first: int) -> None:
        """None so far; `first` steps had begun before."""
        self._first = first
        self._count = 0
        self._total_ns = 0
        self._classes: dict[int, int] = {}
        self._longest: list[tuple[int, int]] = []

    def add(self, number: int, duration_ns: int) -> None:
        """A step has ended; takes about 1 us."""
        self._count += 1
        self._total_ns += duration_ns
        size = round(math.log(max(duration_ns, 1)) * _PER_E)
        self._classes[size] = self._classes.get(size, 0) + 1
        if len(self._longest) < LONGEST:
            heapq.heappush(self._longest, (duration_ns, number))
        elif duration_ns > self._longest[0][0]:
            heapq.heapreplace(self._longest, (duration_ns, number))

    def summary(self) -> LaterSteps | None:
        """What was collected; None without a step."""
        if not self._count:
            return None
        return LaterSteps(
            first=self._first,
            count=self._count,
            total_ns=self._total_ns,
            median_ns=self._median_ns(),
            longest=tuple(sorted((number, ns) for ns, number in self._longest)),
        )

    def _median_ns(self) -> int:
        seen = 0
        for size in sorted(self._classes):
            seen += self._classes[size]
            if 2 * seen >= self._count:
                break
        return round(math.exp(size / _PER_E))
