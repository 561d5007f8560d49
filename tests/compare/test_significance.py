"""Quantiles against published tables and against the oracle's integrals."""

import pytest

from nsysflow.compare.significance import beyond, two_sided_normal, two_sided_t
from tests.oracle.comparing import t_quantile


def test_a_normal_lies_beyond_1_96_in_one_case_of_20() -> None:
    assert two_sided_normal(0.05) == pytest.approx(1.959964, abs=1e-6)


@pytest.mark.parametrize(
    ("alpha", "df", "t"),
    [
        (0.05, 1, 12.7062),
        (0.05, 2, 4.30265),
        (0.05, 4, 2.77645),
        (0.05, 30, 2.04227),
        (0.01, 1, 63.6567),
        (0.01, 10, 3.16927),
    ],
)
def test_t_is_that_of_published_tables(alpha: float, df: float, t: float) -> None:
    assert two_sided_t(alpha, df) == pytest.approx(t, rel=1e-5)


@pytest.mark.parametrize("df", [1, 1.3, 2.5, 7.9, 40.1, 900])
def test_t_is_that_of_the_integrated_density(df: float) -> None:
    assert two_sided_t(0.05, df) == pytest.approx(t_quantile(0.05, df), rel=1e-8)


@pytest.mark.parametrize("df", [1e5, 1e8])
def test_t_of_many_degrees_of_freedom_is_normal(df: float) -> None:
    assert two_sided_t(0.05, df) == pytest.approx(two_sided_normal(0.05), rel=1e-4)


@pytest.mark.parametrize("df", [1, 2.5, 30, 1e4])
def test_t_lies_beyond_its_quantile_with_probability_alpha(df: float) -> None:
    assert beyond(two_sided_t(0.05, df), df) == pytest.approx(0.05, rel=1e-9)


def test_all_of_t_lies_beyond_0() -> None:
    assert beyond(0.0, 3) == 1.0
