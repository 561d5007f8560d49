"""What does a typical step take, and how well is that known? (docs/spec.md §18)"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from math import ceil, nan, sqrt
from statistics import fmean, median
from typing import Literal

from nsysflow.compare.effective import Dependence, of_ranks, smallest_count
from nsysflow.compare.runs import RUNS_NEEDED, margin_of, mean_of
from nsysflow.compare.significance import ALPHA, two_sided_normal, two_sided_t


@dataclass(frozen=True, kw_only=True)
class Typical:
    """The typical step of a report or of several runs, in the unit of the values.

    Attributes:
        value: of one run its median step; of several the mean of their median steps. NaN of none.
        low: the lower end of its interval; None where there are too few steps or runs to say.
        high: the upper end.
        unit: what is counted. Runs where there are several.
        count: how many steps or runs.
        effective: how many independent ones they are worth.
    """

    value: float
    low: float | None
    high: float | None
    unit: Literal["step", "run"]
    count: int
    effective: float


def typical(runs: Sequence[Sequence[float]]) -> Typical:
    """The typical step. Runs without steps do not count.

    Args:
        runs: a value for each step of each run, in their order.
    """
    runs = [run for run in runs if run]
    if len(runs) > 1:
        return _of_runs([median(run) for run in runs])
    return _of_steps([*chain(*runs)])


def needed_for(runs: Sequence[Sequence[float]], distance: float) -> int | None:
    """How many steps (or runs) would make the interval of `typical` reach no further than this.

    The interval narrows with the square root of their number. If these values are too few for an
    interval, half of their range stands for its reach at the smallest number that gives one.

    Args:
        runs: as of `typical`.
        distance: half the width of the interval, in the unit of the values.

    Returns:
        None where no number is enough: the distance is not above 0, or there are no steps.
    """
    runs = [run for run in runs if run]
    if not runs or distance <= 0:
        return None
    if len(runs) > 1:
        return _runs_needed([median(run) for run in runs], distance)
    return _steps_needed(runs[0], distance)


def _of_runs(medians: list[float]) -> Typical:
    value = fmean(medians)
    off = margin_of(mean_of(medians), ALPHA) if len(medians) >= RUNS_NEEDED else None
    return Typical(
        value=value,
        low=None if off is None else value - off,
        high=None if off is None else value + off,
        unit="run",
        count=len(medians),
        effective=len(medians),
    )


def _of_steps(values: Sequence[float]) -> Typical:
    dependence = of_ranks(values)
    ordered = sorted(values)
    outside = _outside(dependence)
    return Typical(
        value=median(ordered) if ordered else nan,
        low=None if outside is None else ordered[outside],
        high=None if outside is None else ordered[-1 - outside],
        unit="step",
        count=dependence.count,
        effective=dependence.effective,
    )


def _outside(dependence: Dependence) -> int | None:
    """How many of the values on either side lie outside of the median's interval."""
    if not dependence.count:
        return None
    share = 0.5 - two_sided_normal(ALPHA) / (2 * sqrt(dependence.effective))
    return int(dependence.count * share) if share >= 0 else None


def _steps_needed(values: Sequence[float], distance: float) -> int:
    found, dependence = _of_steps(values), of_ranks(values)
    fewest = smallest_count(lambda n: _outside(replace(dependence, count=n)) is not None)
    if found.low is None or found.high is None:
        reach, steps = (max(values) - min(values)) / 2, fewest
    else:
        reach, steps = (found.high - found.low) / 2, len(values)
    return max(fewest, ceil(steps * (reach / distance) ** 2))


def _runs_needed(medians: list[float], distance: float) -> int:
    mean = mean_of(medians)
    variance = mean.variance * len(medians)
    normal = ceil(variance * (two_sided_normal(ALPHA) / distance) ** 2)
    return next(
        runs
        for runs in count(max(RUNS_NEEDED, normal))
        if two_sided_t(ALPHA, runs - 1) * sqrt(variance / runs) <= distance
    )
