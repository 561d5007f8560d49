"""A figure beside its baseline: the interval of their ratio."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Final, Literal

from nsysflow.budgets.baseline import Known
from nsysflow.compare.changed import change_of
from nsysflow.compare.typical import needed_for, typical

_EXACT: Final = 1e6
"""Comparisons take whole numbers. Values times this are, nearly: percentages too."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Where a figure lies.

    Attributes:
        low: its lower end; None where there are too few steps or captures to say.
        high: its upper end.
        counted: what it counts.
        needed: how many of them would show on which side of the limit it lies; None if none.
    """

    low: float | None
    high: float | None
    counted: Literal["step", "run"]
    needed: int | None


def beside(known: Known, runs: Sequence[Sequence[float]], factor: float) -> Interval:
    """The interval of a figure, in its unit: that of its ratio to the baseline, times the baseline.

    Args:
        known: the baseline, above 0.
        runs: the figure in each step of each capture.
        factor: the largest ratio.
    """
    if not known.has_steps and len(runs) == len(known.runs) == 1:
        return _quotient(known, runs, factor)
    change = change_of(_exact(known.runs), _exact(runs))
    unit = change.unit
    if change.low_pct is None or change.high_pct is None:
        return Interval(low=None, high=None, counted=unit, needed=change.needed)
    low, high = (known.value * (1 + pct / 100) for pct in (change.low_pct, change.high_pct))
    distance = abs(1 + change.shift_pct / 100 - factor) * known.value
    needed = enough(change.new_count, (high - low) / 2, distance)
    return Interval(low=low, high=high, counted=unit, needed=needed)


def _quotient(known: Known, runs: Sequence[Sequence[float]], factor: float) -> Interval:
    """The same of two captures, of which one has only its interval left: each figure may lie
    anywhere in its own."""
    found = typical(runs)
    distance = abs(found.value - factor * known.value)
    if found.low is None or found.high is None or known.low is None or known.high is None:
        return Interval(low=None, high=None, counted="step", needed=needed_for(runs, distance))
    low = found.low * known.value / known.high
    high = found.high * known.value / known.low if known.low else inf
    needed = enough(found.count, (high - low) / 2, distance)
    return Interval(low=low, high=high, counted="step", needed=needed)


def enough(count: int, reach: float, distance: float) -> int | None:
    """How many it takes for a shorter reach, which narrows with the root of their number."""
    if not distance or reach == inf:
        return None
    return max(count + 1, ceil(count * (reach / distance) ** 2))


def _exact(runs: Sequence[Sequence[float]]) -> list[list[int]]:
    return [[round(value * _EXACT) for value in run] for run in runs]
