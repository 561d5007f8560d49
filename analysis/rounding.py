"""Means, medians, percentiles as spec defines them: whole ns, linear interpolation, std of n - 1."""

import polars as pl


def whole_ns(value: pl.Expr) -> pl.Expr:
    """Rounded to whole nanoseconds, halves to even."""
    return value.round(0, mode="half_to_even").cast(pl.Int64)


def median_ns(value: pl.Expr) -> pl.Expr:
    """Median of integer nanoseconds, rounded."""
    return whole_ns(value.median())


def p95_ns(value: pl.Expr) -> pl.Expr:
    """95th percentile of integer nanoseconds, interpolated linearly, rounded."""
    return whole_ns(value.quantile(0.95, interpolation="linear"))


def spread(value: pl.Expr) -> list[pl.Expr]:
    """`mean_ns`, `median_ns`, `min_ns`, `max_ns`, `std_ns`, `p95_ns` of `value`."""
    return [
        whole_ns(value.mean()).alias("mean_ns"),
        median_ns(value).alias("median_ns"),
        value.min().alias("min_ns"),
        value.max().alias("max_ns"),
        whole_ns(value.std()).alias("std_ns"),
        p95_ns(value).alias("p95_ns"),
    ]


def percent(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    """`part` of `whole` as 0..100; null where the whole is 0."""
    return pl.when(whole != 0).then(100.0 * part / whole)
