"""Means, medians and their errors: how well a difference of samples is known."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, fsum, inf, lgamma, log, log1p, pi, sqrt
from operator import mul
from statistics import NormalDist, fmean
from typing import Final

_LARGEST_BIAS: Final = 5
"""A sample's lag-1 autocorrelation is too low by (1 + 4 rho) / n (Marriott and Pope 1954)."""
_COUNTS: Final = range(1, 10**9)
_TELLS_RHO: Final = 10
"""Fewer values cannot tell it."""
_USUAL_RHO: Final = 0.5
"""As large as in most real captures (docs/facts.md)."""


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
    def sample_size(self) -> float:
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


ALPHA: Final = 0.05
"""The share of false alarms to aim for."""
_PRECISION: Final = 1e-13
_TINY: Final = 1e-300
"""Stands for 0 where something is divided by it, or its log is taken."""


def two_sided_normal(alpha: float) -> float:
    """The z that a standard normal exceeds, on either side, with probability `alpha`."""
    return NormalDist().inv_cdf(1 - alpha / 2)


def two_sided_t(alpha: float, df: float) -> float:
    """The t that Student's t exceeds, on either side, with probability `alpha`.

    Args:
        alpha: between 0 and 1.
        df: degrees of freedom, above 0; they need not be whole.
    """
    # Newton. The tail is convex and starts above alpha, so that t only grows and never overshoots.
    t = two_sided_normal(alpha)
    while True:
        step = (beyond(t, df) - alpha) / _density(t, df)
        t += step
        if step <= _PRECISION * t:
            return t


def beyond(t: float, df: float) -> float:
    """The probability that Student's t lies further from 0 than `t`, on either side."""
    return _incomplete_beta(df / (df + t * t), t * t / (df + t * t), df / 2, 0.5)


def _density(t: float, df: float) -> float:
    """The density of |t|."""
    scale = lgamma((df + 1) / 2) - lgamma(df / 2) - log(df * pi) / 2
    return 2 * exp(scale - (df + 1) / 2 * log1p(t * t / df))


def _incomplete_beta(x: float, rest: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b); `rest` is 1 - x, without its rounding."""
    if x <= 0 or rest <= 0:
        return float(rest <= 0)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast only below
        return 1 - _incomplete_beta(rest, x, b, a)
    front = a * log(x) + b * log(rest) + lgamma(a + b) - lgamma(a) - lgamma(b)
    return exp(front) / (a * _fraction(x, a, b))


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method (DLMF 8.17.22)."""
    value, numerator, denominator = 1.0, 1.0, 0.0
    term = 0
    while True:
        term += 1
        half = term // 2
        if term % 2:
            factor = -(a + half) * (a + b + half) / ((a + 2 * half) * (a + 2 * half + 1)) * x
        else:
            factor = half * (b - half) / ((a + 2 * half - 1) * (a + 2 * half)) * x
        denominator = 1 / ((1 + factor * denominator) or _TINY)
        numerator = (1 + factor / numerator) or _TINY
        value *= numerator * denominator
        if abs(numerator * denominator - 1) < _PRECISION:
            return value


RUNS_NEEDED: Final = 3
"""So many runs a side are enough. Of two, 1 of 60 equal pairs of sides was called slower, by 24 %:
two alike runs say nothing about a third."""


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


def mean_of(values: Sequence[float], sample_size: float | None = None) -> Mean:
    """The mean of values that are worth `sample_size` independent ones, at least 2; None: all.

    The squares of dependent values are too small by 1/sample_size, as the values share part of
    their distance from the true mean.
    """
    worth = len(values) if sample_size is None else sample_size
    value = fsum(values) / len(values)
    squares = fsum((other - value) ** 2 for other in values)
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
    """Whether these are enough runs to say what changed: three a side."""
    return min(base_runs, new_runs) >= RUNS_NEEDED


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
        return _interval(mean_of_steps(base[0]), mean_of_steps(new[0]))
    return None


def mean_ratio_interval(
    base: Sequence[Sequence[float]], new: Sequence[Sequence[float]]
) -> tuple[float, float] | None:
    """The interval, at 95 %, of mean(new) / mean(base): that of the difference of their logs.

    Args:
        base: a value, at least 0, for each step of each run, in their order; not all are 0.
        new: the same of the other side.

    Returns:
        None where there are too few steps, or runs, to say.
    """
    if suffice(len(base), len(new)):
        logs = [[log(max(fmean(run), _TINY)) for run in side] for side in (base, new)]
        found = _interval(mean_of(logs[0]), mean_of(logs[1]))
    elif len(base) == len(new) == 1:
        found = _interval(*(_log_of_steps(side[0]) for side in (base, new)))
    else:
        return None
    return found and (exp(found[0]), exp(found[1]))


def _log_of_steps(values: Sequence[float]) -> Mean | None:
    """The log of the mean of steps: its error is that of the mean, as a share of it."""
    value = fmean(values)
    of_steps = mean_of_steps([each / value for each in values]) if value else None
    if of_steps is None:
        # of steps that are all 0 there is nothing that could be wrong
        return None if value else Mean(value=log(_TINY), variance=0, df=1)
    return replace(of_steps, value=log(value))


def _interval(base: Mean | None, new: Mean | None) -> tuple[float, float] | None:
    if base is None or new is None:
        return None
    difference, off = new.value - base.value, margin(base, new, ALPHA)
    return difference - off, difference + off


def _of_runs(runs: Sequence[Sequence[float]]) -> Mean:
    """The mean of the runs' means."""
    return mean_of([fmean(run) for run in runs])


def mean_of_steps(values: Sequence[float]) -> Mean | None:
    """The mean of steps, which follow each other; None if they are worth fewer than two."""
    sample_size = _dependence(values).sample_size
    return mean_of(values, sample_size) if sample_size >= _FEWEST_EFFECTIVE else None


def _dependence(values: Sequence[float]) -> Dependence:
    """That of the values, for the variance of their mean. Where all are equal so is their mean,
    which floats may miss."""
    return of_values(values, values[0] if min(values) == max(values) else fmean(values))


def steps_for_a_mean(values: Sequence[float]) -> int:
    """So many steps have an interval of their mean, if they depend on each other as these do."""
    dependence = _dependence(values)
    return smallest_count(
        lambda steps: replace(dependence, count=steps).sample_size >= _FEWEST_EFFECTIVE
    )


COMPLETE: Final = 0.5
"""How far from 1/2 the share of pairs is if all of `new` is larger, or all smaller."""
_FEW: Final = 100_000
"""So many differences are listed and sorted; of more, those around the one looked for."""


def half_width(base_sample_size: float, new_sample_size: float) -> float:
    """How far from 1/2 the share of pairs in which `new` is larger must be to be significant.

    Mann and Whitney's test with its correction for continuity. More than `COMPLETE`: there are too
    few steps.
    """
    pairs = base_sample_size * new_sample_size
    if not pairs:
        return inf
    deviation = sqrt((base_sample_size + new_sample_size + 1) / (12 * pairs))
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
    differences: list[float] = []
    start = 0
    for value in base:
        start = bisect_left(new, first, start, key=lambda other: other - value)
        for at in range(start, len(new)):
            difference = new[at] - value
            if difference > last:
                break
            differences.append(difference)
    return differences
