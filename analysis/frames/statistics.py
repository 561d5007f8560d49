"""Means, medians and percentiles as the spec defines them: whole ns, interpolated linearly."""

import polars as pl


def whole_ns(value: pl.Expr) -> pl.Expr:
    """Rounded to whole nanoseconds, halves to even."""
    return value.round(0, mode="half_to_even").cast(pl.Int64)


def median_ns(value: pl.Expr) -> pl.Expr:
    """Median of integer nanoseconds, rounded."""
    return whole_ns(value.median())


def p95_ns(value: pl.Expr) -> pl.Expr:
    """95th percentile of integer nanoseconds, interpolated linearly, rounded.

    In whole numbers, since a float can miss the half by an ulp and round to the wrong side.
    """
    low, high = (
        value.quantile(0.95, interpolation=side).cast(pl.Int64) for side in ("lower", "higher")
    )
    hundredfold = 100 * low + (high - low) * (95 * (value.count().cast(pl.Int64) - 1) % 100)
    floor, rest = hundredfold // 100, hundredfold % 100
    up = (rest > 50) | ((rest == 50) & (floor % 2 == 1))
    return floor + up.cast(pl.Int64)


def std_ns(value: pl.Expr) -> pl.Expr:
    """Standard deviation of the sample (n - 1), rounded; null for fewer than two values.

    Squares are summed in 128 bits: the square of 3 s passes 2**63.
    """
    count = value.count().cast(pl.Int128)
    off = (value - value.min()).cast(pl.Int128)
    squares = count * (off * off).sum() - off.sum() * off.sum()
    variance = squares.cast(pl.Float64) / (count * (count - 1)).cast(pl.Float64)
    return whole_ns(pl.when(count > 1).then(variance.sqrt()))


def spread(value: pl.Expr) -> list[pl.Expr]:
    """`mean_ns`, `median_ns`, `min_ns`, `max_ns`, `std_ns`, `p95_ns` of `value`."""
    return [
        whole_ns(value.mean()).alias("mean_ns"),
        median_ns(value).alias("median_ns"),
        value.min().alias("min_ns"),
        value.max().alias("max_ns"),
        std_ns(value).alias("std_ns"),
        p95_ns(value).alias("p95_ns"),
    ]


def percent(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    """`part` of `whole` as 0..100; null where the whole is 0."""
    return pl.when(whole != 0).then(100.0 * part / whole)
