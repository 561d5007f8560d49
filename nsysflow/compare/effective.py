"""How many independent steps are worth as much as these, which follow each other?"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Final

_LARGEST_BIAS: Final = 5
"""A sample's lag-1 autocorrelation is too low by (1 + 4 rho) / n (Marriott and Pope 1954)."""
_COUNTS: Final = range(1, 10**9)
_TELLS_RHO: Final = 10
"""Fewer values cannot tell it."""
_USUAL_RHO: Final = 0.5
"""As large as in most real captures (docs/accuracy.md)."""


@dataclass(frozen=True, kw_only=True)
class Dependence:
    """How much the values of a sample tell beside each other.

    Attributes:
        count: how many values.
        lag_1: the autocorrelation of neighbours; None where all values are equal.
    """

    count: int
    lag_1: float | None

    @property
    def effective(self) -> float:
        """How many independent values tell at least as much."""
        if self.lag_1 is None or not self.count:
            return self.count
        rho = min(max(self.lag_1 + _LARGEST_BIAS / self.count, 0.0), 1.0)
        return max(1.0, self.count * (1 - rho) / (1 + rho))


def of_ranks(values: Sequence[float]) -> Dependence:
    """The dependence of the ranks of `values`, in whole numbers until the last division."""
    ordered = sorted(values)
    first = {value: at for at, value in reversed([*enumerate(ordered)])}
    count = len(ordered)
    # the sum of the first and the last rank of equal values, less twice the mean rank
    return _of([first[value] + bisect_right(ordered, value) - count for value in values])


def of_values(values: Sequence[float], mean: float) -> Dependence:
    """The dependence of the values themselves, for the variance of their mean."""
    return _of([value - mean for value in values])


def _of(centred: Sequence[float]) -> Dependence:
    """The dependence of values whose mean is 0."""
    if len(centred) < _TELLS_RHO:
        return Dependence(count=len(centred), lag_1=_USUAL_RHO)
    squares = sum(map(mul, centred, centred))
    products = sum(map(mul, centred, centred[1:]))
    return Dependence(count=len(centred), lag_1=products / squares if squares else None)


def smallest_count(enough: Callable[[int], bool]) -> int:
    """The smallest number of values that is enough, if more than enough is too."""
    return bisect_left(_COUNTS, True, key=enough) + 1
