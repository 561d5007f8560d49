"""Means, medians and percentiles against Python's exact fractions."""

from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.analysis.frames.statistics import median_ns, p95_ns, percent, spread, std_ns, whole_ns
from tests.oracle.stats import mean, percentile, whole

VALUES = st.lists(st.integers(0, 10**13), min_size=1, max_size=30)


def of(values: list[int], expression: pl.Expr) -> object:
    return pl.DataFrame({"ns": values}).select(expression.alias("found")).item()


@given(VALUES)
def test_statistics_are_exact_values_rounded_half_to_even(values: list[int]) -> None:
    ns = pl.col("ns")
    assert of(values, p95_ns(ns)) == whole(percentile(values, 95))
    assert of(values, median_ns(ns)) == pytest.approx(whole(percentile(values, 50)), rel=1e-15)
    assert of(values, whole_ns(ns.mean())) == pytest.approx(whole(mean(values)), rel=1e-12)


def test_halves_are_rounded_to_even() -> None:
    assert of([1, 2], median_ns(pl.col("ns"))) == 2
    assert of([2, 3], median_ns(pl.col("ns"))) == 2


def test_one_value_has_no_standard_deviation() -> None:
    assert of([5], std_ns(pl.col("ns"))) is None
    assert of([2, 4, 4, 4, 5, 5, 7, 9], std_ns(pl.col("ns"))) == 2  # sqrt(32 / 7) = 2.14


def test_a_share_of_zero_is_null() -> None:
    assert of([0], percent(pl.col("ns"), pl.col("ns"))) is None
    assert of([4], percent(pl.col("ns") - 1, pl.col("ns"))) == 75


def test_the_spread_names_its_six_columns() -> None:
    frame = pl.DataFrame({"ns": [1, 2, 3]}).select(spread(pl.col("ns")))
    assert frame.row(0, named=True) == {
        "mean_ns": 2,
        "median_ns": 2,
        "min_ns": 1,
        "max_ns": 3,
        "std_ns": 1,
        "p95_ns": whole(Fraction(29, 10)),
    }
