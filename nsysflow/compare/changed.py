"""Did the step time change, by how much, and could these steps tell? (docs/spec.md §18)"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import expm1, log, log1p, nan
from statistics import fmean, median
from typing import Final, Literal

from nsysflow.compare.effective import Dependence, of_ranks, smallest_count
from nsysflow.compare.runs import RUNS_NEEDED, margin, mean_of, pooled_deviation, suffice
from nsysflow.compare.shift import COMPLETE, half_width, interval, median_difference
from nsysflow.compare.significance import ALPHA

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
        base_effective: how many independent ones they are worth.
        new_effective: the same of the other side.
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
    base_effective: float
    new_effective: float
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
    effective: tuple[float, float]
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
        effective=(of_base.effective, of_new.effective),
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
    return half_width(base.effective, new.effective)


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
        effective=(len(base), len(new)),
        needed=RUNS_NEEDED,
    )


def _change(found: _Estimate) -> Change:
    low, high = found.interval or (None, None)
    return Change(
        verdict=_verdict(found),
        unit=found.unit,
        shift_pct=_percent(found.shift),
        low_pct=None if low is None else _percent(low),
        high_pct=None if high is None else _percent(high),
        alpha=ALPHA,
        floor_pct=_percent(found.floor),
        base_count=found.counts[0],
        new_count=found.counts[1],
        base_effective=found.effective[0],
        new_effective=found.effective[1],
        needed=None if found.interval else found.needed,
        detectable_pct=_detectable_pct(found),
    )


def _detectable_pct(found: _Estimate) -> float | None:
    """The longer arm of the interval, or the floor: it would reach 0 from any smaller shift."""
    if found.interval is None:
        return None
    low, high = found.interval
    return _percent(max(found.floor, found.shift - low, high - found.shift))


def _verdict(found: _Estimate) -> Verdict:
    """Better or worse if 0 lies outside of the interval and the shift reaches the floor."""
    if found.interval is None:
        return "not enough steps"
    low, high = found.interval
    if low <= 0 <= high or abs(found.shift) < found.floor:
        return "no significant change"
    return "worse" if found.shift > 0 else "better"


def _percent(shift: float) -> float:
    """A difference of logs as a percentage of the base."""
    return 100 * expm1(shift)
