"""What changed between captures (spec §18), by listing all pairs and integrating densities."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from math import atan, cos, erf, exp, floor, lgamma, log, pi, sqrt
from statistics import fmean, median, variance

Runs = Sequence[Sequence[float]]
Interval = tuple[float, float]
Mean = tuple[float, float, float]
"""A mean, its variance and degrees of freedom."""

PARTS = 1000


def z_quantile(alpha: float) -> float:
    """What a standard normal exceeds, on either side, with probability alpha."""
    low, high = 0.0, 40.0
    for _ in range(200):
        middle = (low + high) / 2
        inside = erf(middle / sqrt(2)) < 1 - alpha
        low, high = (middle, high) if inside else (low, middle)
    return low


def t_quantile(alpha: float, df: float) -> float:
    """The same of Student's t."""
    low, high = 0.0, 1e6
    for _ in range(100):
        middle = (low + high) / 2
        inside = _t_inside(middle, df) < 1 - alpha
        low, high = (middle, high) if inside else (low, middle)
    return low


def _t_inside(t: float, df: float) -> float:
    """The probability of |T| < t. With t = sqrt(df) tan(x) its density is that of cos(x)^(df-1)."""
    whole = sqrt(pi) / 2 * exp(lgamma(df / 2) - lgamma((df + 1) / 2))
    width = atan(t / sqrt(df)) / PARTS
    weights = [1, *[4, 2] * (PARTS // 2 - 1), 4, 1]  # Simpson's rule
    heights = [exp((df - 1) * log(cos(width * at))) for at in range(PARTS + 1)]
    under = sum(weight * height for weight, height in zip(weights, heights, strict=True))
    return width / 3 * under / whole


def middle_rank(values: Sequence[float], value: float) -> Fraction:
    """§18.2: equal values have the mean of their ranks."""
    less = sum(other < value for other in values)
    equal = sum(other == value for other in values)
    return less + Fraction(equal + 1, 2)


def lag_1(values: Sequence[Fraction]) -> Fraction | None:
    """§18.3: the autocorrelation of neighbours; None of equal values."""
    if len(values) < 10:
        return Fraction(1, 2)
    mean = sum(values, Fraction(0)) / len(values)
    off = [value - mean for value in values]
    together = sum(one * other for one, other in pairwise(off))
    return Fraction(together) / sum(each * each for each in off) if any(off) else None


def effective(count: int, autocorrelation: Fraction | None) -> float:
    """§18.3: the number of independent steps that are worth as much."""
    if autocorrelation is None:
        return count
    rho = min(max(autocorrelation + Fraction(5, count), Fraction(0)), Fraction(1))
    return max(1.0, float(count * (1 - rho) / (1 + rho)))


def effective_steps(values: Sequence[float]) -> float:
    """§18.3: of the ranks of a run's steps."""
    return effective(len(values), lag_1([middle_rank(values, value) for value in values]))


def differences(base: Sequence[float], new: Sequence[float]) -> list[float]:
    """§18.4: of the logs, each step with each, in order."""
    return sorted(log(max(other, 1)) - log(max(one, 1)) for one in base for other in new)


def half_width(base: float, new: float) -> float:
    """§18.5: of two effective numbers of steps."""
    return z_quantile(0.05) * sqrt((base + new + 1) / (12 * base * new)) + 1 / (2 * base * new)


def shift(base: Runs, new: Runs) -> float:
    """§18.4, §18.8: by how much log step time changed."""
    if len(base) == len(new) == 1:
        return median(differences(base[0], new[0]))
    return fmean(log_medians(new)) - fmean(log_medians(base))


def log_medians(runs: Runs) -> list[float]:
    """§18.8: what stands for a run."""
    return [median(log(max(step, 1)) for step in run) for run in runs]


def interval(base: Runs, new: Runs) -> Interval | None:
    """§18.5, §18.6, §18.8: where the shift may lie."""
    if len(base) == len(new) == 1:
        width = half_width(effective_steps(base[0]), effective_steps(new[0]))
        if width > 0.5:
            return None
        listed = differences(base[0], new[0])
        outside = floor(len(listed) * (0.5 - width))
        return listed[outside], listed[len(listed) - 1 - outside]
    if not enough_runs(base, new):
        return None
    return welch([mean_of_runs(log_medians(side)) for side in (base, new)])


def enough_runs(base: Runs, new: Runs) -> bool:
    """§18.8: three runs a side."""
    return min(len(base), len(new)) >= 3


def mean_of_runs(values: Sequence[float]) -> Mean:
    """§18.8: of what each run has."""
    return fmean(values), variance(values) / len(values), len(values) - 1


def welch(means: Sequence[Mean]) -> Interval:
    """§18.8: where the difference of two means may lie."""
    (base, base_variance, base_df), (new, new_variance, new_df) = means
    total = base_variance + new_variance
    off = 0.0
    if total:
        df = total**2 / (base_variance**2 / base_df + new_variance**2 / new_df)
        off = t_quantile(0.05, df) * sqrt(total)
    return new - base - off, new - base + off


def floor_of(base: Runs, new: Runs) -> float:
    """§18.7: the smallest shift that counts."""
    sides = [log_medians(side) for side in (base, new) if len(side) > 1]
    smallest = log(1.01)
    if not sides:
        return smallest
    squares = sum(variance(side) * (len(side) - 1) for side in sides)
    return max(smallest, sqrt(squares / sum(len(side) - 1 for side in sides)))


def verdict(base: Runs, new: Runs) -> str:
    """§18.7: what is said of it."""
    reach = interval(base, new)
    if reach is None:
        return "not enough steps"
    moved = shift(base, new)
    if reach[0] <= 0 <= reach[1] or abs(moved) < floor_of(base, new):
        return "no significant change"
    return "worse" if moved > 0 else "better"


def median_step(values: Sequence[float]) -> tuple[float, Interval | None]:
    """§18.10: the median of a figure of a run's steps, and its interval."""
    ordered = sorted(values)
    share = 0.5 - z_quantile(0.05) / (2 * sqrt(effective_steps(values)))
    if share < 0:
        return median(ordered), None
    outside = floor(len(ordered) * share)
    return median(ordered), (ordered[outside], ordered[len(ordered) - 1 - outside])


def mean_step(runs: Runs) -> tuple[float, Interval | None]:
    """§20.4: the mean of a figure over the steps of a run, or of the runs' means."""
    if len(runs) > 1:
        means = [fmean(run) for run in runs]
        found = mean_of_runs(means) if len(runs) >= 3 else None
        middle = fmean(means)
    else:
        found, middle = mean_of_steps(runs[0]), fmean(runs[0])
    if found is None:
        return middle, None
    _, of_mean, df = found
    off = t_quantile(0.05, df) * sqrt(of_mean)
    return middle, (middle - off, middle + off)


def mean_ratio(base: Runs, new: Runs) -> Interval | None:
    """§20.5: where the ratio of the means, new ÷ base, may lie; all values are above 0."""
    logs = difference(base, new, log_of_steps, lambda run: log(fmean(run)))
    return logs and (exp(logs[0]), exp(logs[1]))


def difference(
    base: Runs,
    new: Runs,
    of_steps: Callable[[Sequence[float]], Mean | None],
    of_run: Callable[[Sequence[float]], float],
) -> Interval | None:
    """§18.8, §18.12: of the means of two sides: over the steps of a run each, or over the runs."""
    if len(base) == len(new) == 1:
        means = [of_steps(side[0]) for side in (base, new)]
        return None if None in means else welch([mean for mean in means if mean])
    if not enough_runs(base, new):
        return None
    return welch([mean_of_runs([of_run(run) for run in side]) for side in (base, new)])


def log_of_steps(values: Sequence[float]) -> Mean | None:
    """§20.5: the log of the mean of a run; its variance is that of the mean ÷ the mean squared."""
    found = mean_of_steps(values)
    if found is None:
        return None
    mean, of_mean, df = found
    return log(mean), of_mean / mean**2, df


def mean_change(base: Runs, new: Runs) -> Interval | None:
    """§18.12: where the difference of the means may lie."""
    return difference(base, new, mean_of_steps, fmean)


def mean_of_steps(values: Sequence[float]) -> Mean | None:
    """§18.12: of the steps of a run; None of too few."""
    count = effective(len(values), lag_1([Fraction(value) for value in values]))
    if count < 2:
        return None
    mean = fmean(values)
    squares = sum((value - mean) ** 2 for value in values)
    return mean, squares / (len(values) * (count - 1)), count - 1
