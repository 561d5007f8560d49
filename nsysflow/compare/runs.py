"""Means and their errors: Welch's test of runs, and of steps where means are compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from typing import Final

from nsysflow.compare.significance import two_sided_t

RUNS_NEEDED: Final = 3
"""So many runs a side are always enough."""


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A mean and how well it is known.

    Attributes:
        value: the mean.
        variance: of the mean, not of the values.
        df: the degrees of freedom of `variance`.
    """

    value: float
    variance: float
    df: float


def mean_of(values: Sequence[float], effective: float | None = None) -> Mean:
    """The mean of values that are worth `effective` independent ones, at least 2; None: all.

    The squares of dependent values are too small by 1/effective, as the values share part of
    their distance from the true mean.
    """
    worth = len(values) if effective is None else effective
    value = fsum(values) / len(values)
    squares = fsum((each - value) ** 2 for each in values)
    return Mean(value=value, variance=squares / (len(values) * (worth - 1)), df=worth - 1)


def margin(base: Mean, new: Mean, alpha: float) -> float:
    """Half the width of Welch's interval of the difference of two means."""
    variance = base.variance + new.variance
    if not variance:
        return 0.0
    df = variance**2 / (base.variance**2 / base.df + new.variance**2 / new.df)
    return two_sided_t(alpha, df) * sqrt(variance)


def margin_of(mean: Mean, alpha: float) -> float:
    """Half the width of Student's interval of one mean."""
    return two_sided_t(alpha, mean.df) * sqrt(mean.variance)


def pooled_deviation(sides: Sequence[Sequence[float]]) -> float:
    """The standard deviation within the sides, of those with two values or more; 0 without any."""
    several = [side for side in sides if len(side) > 1]
    if not several:
        return 0.0
    squares = fsum((value - fsum(side) / len(side)) ** 2 for side in several for value in side)
    return sqrt(squares / sum(len(side) - 1 for side in several))


def suffice(base_runs: int, new_runs: int) -> bool:
    """Whether these are enough runs to say what changed: two a side, and three of one."""
    return min(base_runs, new_runs) >= 2 and max(base_runs, new_runs) >= RUNS_NEEDED
