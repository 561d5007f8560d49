"""How well is the difference of two means known? The rows of a bridge are such differences."""

from collections.abc import Sequence
from math import fsum
from statistics import fmean
from typing import Final

from nsysflow.compare.effective import of_values
from nsysflow.compare.runs import Mean, margin, mean_of, suffice
from nsysflow.compare.significance import ALPHA

_FEWEST_EFFECTIVE: Final = 2.0
"""Of fewer, no variance can be estimated."""


def mean_change_interval(
    base: Sequence[Sequence[float]], new: Sequence[Sequence[float]]
) -> tuple[float, float] | None:
    """The interval, at 95 %, of mean(new) - mean(base); in the unit of the values.

    Args:
        base: a value for each step of each run, in their order.
        new: the same of the other side. Runs without steps do not count.

    Returns:
        None where there are too few steps, or runs, to say.
    """
    base, new = [run for run in base if run], [run for run in new if run]
    if suffice(len(base), len(new)):
        return _interval(_of_runs(base), _of_runs(new))
    if len(base) == len(new) == 1:
        return _interval(_of_steps(base[0]), _of_steps(new[0]))
    return None


def _interval(base: Mean | None, new: Mean | None) -> tuple[float, float] | None:
    if base is None or new is None:
        return None
    difference, off = new.value - base.value, margin(base, new, ALPHA)
    return difference - off, difference + off


def _of_runs(runs: Sequence[Sequence[float]]) -> Mean:
    """The mean of the runs' means."""
    return mean_of([fmean(run) for run in runs])


def _of_steps(values: Sequence[float]) -> Mean | None:
    """The mean of steps, which follow each other; None if they are worth fewer than two."""
    effective = of_values(values, fsum(values) / len(values)).effective
    return mean_of(values, effective) if effective >= _FEWEST_EFFECTIVE else None
