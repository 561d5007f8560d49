"""What is far from the median, in a sense that a few extremes do not spoil."""

from typing import Final

import polars as pl

FAR: Final = 3.5
"""From this robust z on a value is an outlier (Iglewicz and Hoaglin, 1993)."""

_NORMAL: Final = 0.6745
"""The median distance from the median, of a normal distribution with a standard deviation of 1."""


def robust_z(value: pl.Expr, *over: str) -> pl.Expr:
    """How far each value is from the median of all, by their median distance from it; null where
    that distance is 0."""
    away = value - value.median().over(over)
    usual = away.abs().median().over(over)
    return pl.when(usual > 0).then(_NORMAL * away / usual)


def is_far(z: pl.Expr) -> pl.Expr:
    """Whether a value is an outlier. Where most values are equal, any other one is."""
    return (z.abs() > FAR).fill_null(value=True)
