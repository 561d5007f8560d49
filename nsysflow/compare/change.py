"""Did the step time change, by how much, and how well is a mean known? (docs/spec.md §18)"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from math import ceil, expm1, log, log1p, nan, sqrt
from statistics import fmean, median
from typing import Final, Literal

from nsysflow.compare.statistics import (
    ALPHA,
    COMPLETE,
    RUNS_NEEDED,
    Dependence,
    Mean,
    half_width,
    interval,
    margin,
    margin_of,
    mean_of,
    mean_of_steps,
    median_difference,
    of_ranks,
    pooled_deviation,
    smallest_count,
    steps_for_a_mean,
    suffice,
    two_sided_normal,
    two_sided_t,
)

Verdict = Literal["better", "worse", "no significant change", "not enough steps"]
"""Of runs the last one means not enough runs: `Change.unit` says so."""

_SMALLEST_FLOOR: Final = log1p(0.01)
"""Smaller changes never count, however well they are measured."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """By how much the step time changed. Percentages are of `base`; above 0 is slower.

    Attributes:
        verdict: better or worse only if the interval excludes 0 and the shift reaches the floor.
        unit: what the test counts. Steps where each side is one run; else runs.
        shift_pct: of steps, Hodges and Lehmann's shift of log step time; of runs, the difference of
            the mean logs of their median steps. NaN where a side has no steps.
        low_pct: the lower end of its interval at 1 - alpha; None where there are too few to say.
        high_pct: the upper end.
        alpha: the share of false alarms that the interval aims for.
        floor_pct: the smallest shift that counts.
        base_count: how many steps or runs.
        new_count: the same of the other side.
        base_sample_size: how many independent ones they are worth.
        new_sample_size: the same of the other side.
        needed: how many a side would be enough, if the verdict is that they are not.
        detectable_pct: smaller changes than this do not show; None without an interval.
    """

    verdict: Verdict
    unit: Literal["step", "run"]
    shift_pct: float
    low_pct: float | None
    high_pct: float | None
    alpha: float
    floor_pct: float
    base_count: int
    new_count: int
    base_sample_size: float
    new_sample_size: float
    needed: int | None
    detectable_pct: float | None


@dataclass(frozen=True, kw_only=True)
class _Estimate:
    """The shift of log step time, with its interval where there is one; pairs are (base, new)."""

    unit: Literal["step", "run"]
    shift: float
    interval: tuple[float, float] | None
    floor: float
    counts: tuple[int, int]
    sample_size: tuple[float, float]
    needed: int


def change_of(base: Sequence[Sequence[int]], new: Sequence[Sequence[int]]) -> Change:
    """What became of the step time from `base` to `new`.

    Args:
        base: the durations of the steps of each run, in ns and in their order.
        new: the same of the other side. Runs without steps do not count.
    """
    base_runs, new_runs = _logs(base), _logs(new)
    if max(len(base_runs), len(new_runs)) > 1:
        return _change(_by_runs(_medians(base_runs), _medians(new_runs)))
    return _change(_by_steps([*chain(*base_runs)], [*chain(*new_runs)]))


def _logs(runs: Sequence[Sequence[int]]) -> list[list[float]]:
    """The logs of the durations, of runs that have any; no step takes less than 1 ns."""
    return [[log(max(duration_ns, 1)) for duration_ns in run] for run in runs if run]


def _medians(runs: list[list[float]]) -> list[float]:
    return [median(run) for run in runs]


def _by_steps(base: list[float], new: list[float]) -> _Estimate:
    """Two runs: Mann and Whitney's test with effective numbers of steps."""
    of_base, of_new = of_ranks(base), of_ranks(new)
    width = _width(of_base, of_new)
    base, new = sorted(base), sorted(new)
    return _Estimate(
        unit="step",
        shift=median_difference(base, new) if base and new else nan,
        interval=interval(base, new, width) if width <= COMPLETE else None,
        floor=_SMALLEST_FLOOR,
        counts=(len(base), len(new)),
        sample_size=(of_base.sample_size, of_new.sample_size),
        needed=_steps_needed(of_base, of_new),
    )


def _steps_needed(base: Dependence, new: Dependence) -> int:
    """So many steps a side show that one side is slower if all of its steps are."""
    sides = base, new
    return smallest_count(
        lambda steps: _width(*(replace(side, count=steps) for side in sides)) <= COMPLETE
    )


def _width(base: Dependence, new: Dependence) -> float:
    """How far from 1/2 is significant with these two samples."""
    return half_width(base.sample_size, new.sample_size)


def _by_runs(base: list[float], new: list[float]) -> _Estimate:
    """Several runs: Welch's test of the logs of their medians."""
    enough = suffice(len(base), len(new))
    shift = fmean(new) - fmean(base) if base and new else nan
    off = margin(mean_of(base), mean_of(new), ALPHA) if enough else None
    return _Estimate(
        unit="run",
        shift=shift,
        interval=None if off is None else (shift - off, shift + off),
        floor=max(_SMALLEST_FLOOR, pooled_deviation([base, new])),
        counts=(len(base), len(new)),
        sample_size=(len(base), len(new)),
        needed=RUNS_NEEDED,
    )


def _change(estimate: _Estimate) -> Change:
    low, high = estimate.interval or (None, None)
    return Change(
        verdict=_verdict(estimate),
        unit=estimate.unit,
        shift_pct=_percent(estimate.shift),
        low_pct=None if low is None else _percent(low),
        high_pct=None if high is None else _percent(high),
        alpha=ALPHA,
        floor_pct=_percent(estimate.floor),
        base_count=estimate.counts[0],
        new_count=estimate.counts[1],
        base_sample_size=estimate.sample_size[0],
        new_sample_size=estimate.sample_size[1],
        needed=None if estimate.interval else estimate.needed,
        detectable_pct=_detectable_pct(estimate),
    )


def _detectable_pct(estimate: _Estimate) -> float | None:
    """The longer arm of the interval, or the floor: it would reach 0 from any smaller shift."""
    if estimate.interval is None:
        return None
    low, high = estimate.interval
    return _percent(max(estimate.floor, estimate.shift - low, high - estimate.shift))


def _verdict(estimate: _Estimate) -> Verdict:
    """Better or worse if 0 lies outside of the interval and the shift reaches the floor."""
    if estimate.interval is None:
        return "not enough steps"
    low, high = estimate.interval
    if low <= 0 <= high or abs(estimate.shift) < estimate.floor:
        return "no significant change"
    return "worse" if estimate.shift > 0 else "better"


def _percent(shift: float) -> float:
    """A difference of logs as a percentage of the base."""
    return 100 * expm1(shift)


@dataclass(frozen=True, kw_only=True)
class Middle:
    """The middle of a figure of a report or of several runs, in the unit of the values.

    Attributes:
        value: the mean or the median. NaN of none.
        low: the lower end of its interval; None where there are too few steps or runs to say.
        high: the upper end.
        unit: what is counted. Runs where there are several.
        count: how many steps or runs.
    """

    value: float
    low: float | None
    high: float | None
    unit: Literal["step", "run"]
    count: int


def median_step(values: Sequence[float]) -> Middle:
    """The median of a figure of the steps of one run, in their order."""
    dependence = of_ranks(values)
    ordered = sorted(values)
    outside = _outside(dependence)
    return Middle(
        value=median(ordered) if ordered else nan,
        low=None if outside is None else ordered[outside],
        high=None if outside is None else ordered[-1 - outside],
        unit="step",
        count=dependence.count,
    )


def _outside(dependence: Dependence) -> int | None:
    """How many of the values on either side lie outside of the median's interval."""
    if not dependence.count:
        return None
    share = 0.5 - two_sided_normal(ALPHA) / (2 * sqrt(dependence.sample_size))
    return int(dependence.count * share) if share >= 0 else None


def mean_step(runs: Sequence[Sequence[float]]) -> Middle:
    """The mean of a figure over the steps of a run; of several runs, the mean of their means. Runs
    without steps do not count.

    Args:
        runs: a value for each step of each run, in their order.
    """
    runs = [run for run in runs if run]
    if not runs:
        return Middle(value=nan, low=None, high=None, unit="step", count=0)
    if len(runs) > 1:
        means = [fmean(run) for run in runs]
        mean = mean_of(means) if len(means) >= RUNS_NEEDED else None
        return _middle(fmean(means), mean, "run", len(means))
    (values,) = runs
    return _middle(fmean(values), mean_of_steps(values), "step", len(values))


def _middle(value: float, mean: Mean | None, unit: Literal["step", "run"], count: int) -> Middle:
    off = None if mean is None else margin_of(mean, ALPHA)
    low, high = (None, None) if off is None else (value - off, value + off)
    return Middle(value=value, low=low, high=high, unit=unit, count=count)


def needed_for(runs: Sequence[Sequence[float]], distance: float) -> int | None:
    """How many steps (or runs) would make the interval of `mean_step` reach no further than this.

    The interval narrows with the square root of their number. If these values are too few for an
    interval, half of their range stands for its reach at the smallest number that gives one.

    Args:
        runs: as of `mean_step`.
        distance: half the width of the interval, in the unit of the values.

    Returns:
        None where no number is enough: the distance is not above 0, or there are no steps.
    """
    runs = [run for run in runs if run]
    if not runs or distance <= 0:
        return None
    if len(runs) > 1:
        return _runs_needed([fmean(run) for run in runs], distance)
    return _mean_steps_needed(runs[0], distance)


def _mean_steps_needed(values: Sequence[float], distance: float) -> int:
    middle, fewest = mean_step([values]), steps_for_a_mean(values)
    if middle.low is None or middle.high is None:
        reach, steps = (max(values) - min(values)) / 2, fewest
    else:
        reach, steps = (middle.high - middle.low) / 2, len(values)
    return max(fewest, ceil(steps * (reach / distance) ** 2))


def _runs_needed(means: list[float], distance: float) -> int:
    mean = mean_of(means)
    variance = mean.variance * len(means)
    normal = ceil(variance * (two_sided_normal(ALPHA) / distance) ** 2)
    return next(
        runs
        for runs in count(max(RUNS_NEEDED, normal))
        if two_sided_t(ALPHA, runs - 1) * sqrt(variance / runs) <= distance
    )
