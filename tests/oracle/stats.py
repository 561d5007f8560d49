"""Means, medians, percentiles and standard deviations, exact (the conventions of the spec)."""

from collections.abc import Sequence
from fractions import Fraction
from math import isqrt


def mean(values: Sequence[int]) -> Fraction | None:
    """The arithmetic mean, not rounded."""
    return Fraction(sum(values), len(values)) if values else None


def percentile(values: Sequence[int], percent: int) -> Fraction | None:
    """The percentile, by linear interpolation; not rounded."""
    if not values:
        return None
    ordered = sorted(values)
    position = Fraction((len(ordered) - 1) * percent, 100)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def whole(value: Fraction | None) -> int | None:
    """Rounded to whole ns, half to even."""
    return None if value is None else round(value)


def std(values: Sequence[int]) -> int | None:
    """The sample's standard deviation (n - 1), rounded; None for fewer than two values."""
    if len(values) < 2:
        return None
    middle = Fraction(sum(values), len(values))
    variance = sum((value - middle) ** 2 for value in values) / (len(values) - 1)
    down = isqrt(int(variance))  # the root lies in [down, down + 1)
    half_way = (down + Fraction(1, 2)) ** 2
    if variance == half_way:
        return down + down % 2
    return down + 1 if variance > half_way else down


def spread(values: Sequence[int]) -> dict[str, int | None]:
    """The six columns that describe a distribution."""
    return {
        "mean_ns": whole(mean(values)),
        "median_ns": whole(percentile(values, 50)),
        "min_ns": min(values, default=None),
        "max_ns": max(values, default=None),
        "std_ns": std(values),
        "p95_ns": whole(percentile(values, 95)),
    }
