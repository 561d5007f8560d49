"""Shares are rounded to figures that are far apart."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.report.gap_report import COARSE_SCALE, SCALE, is_listed, rounded_pct
from tests.oracle.gap_report import nearest


@pytest.mark.parametrize(
    ("per_mille", "pct"),
    [(0, 1), (5, 1), (14, 1), (15, 2), (31, 2), (32, 5), (70, 5), (71, 10), (707, 50), (708, 100)],
)
def test_a_share_becomes_the_nearest_of_1_2_5_by_ratio(per_mille: int, pct: int) -> None:
    assert rounded_pct(per_mille, 1000) == pct


def test_a_share_in_the_middle_of_two_figures_takes_the_larger() -> None:
    assert rounded_pct(10, 100, (5, 20)) == 20
    assert rounded_pct(9.5, 100, (5, 20)) == 5


@given(st.integers(0, 10**12), st.integers(1, 10**12), st.sampled_from([SCALE, COARSE_SCALE]))
def test_rounding_agrees_with_the_oracle(halves: int, step: int, scale: tuple[int, ...]) -> None:
    assert rounded_pct(halves / 2, step, scale) == nearest(Fraction(halves, 2 * step), [*scale])


def test_half_a_percent_of_a_step_has_a_row_if_its_interval_agrees() -> None:
    assert is_listed(5, None, 1000)
    assert not is_listed(4.5, None, 1000)
    assert is_listed(9, 5, 1000)
    assert not is_listed(9, 4, 1000)


def test_one_percent_of_a_step_has_a_row_however_it_varies() -> None:
    assert is_listed(10, 0, 1000)


def test_no_time_has_no_row_even_of_a_step_without_length() -> None:
    assert not is_listed(0, None, 0)
