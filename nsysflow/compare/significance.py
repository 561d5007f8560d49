"""How many standard errors are significant: quantiles of the normal and of Student's t."""

from math import exp, lgamma, log, log1p, pi
from statistics import NormalDist
from typing import Final

ALPHA: Final = 0.05
"""The share of false alarms to aim for."""
_PRECISION: Final = 1e-13
_TINY: Final = 1e-300
"""Stands for a zero denominator in the continued fraction."""


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
