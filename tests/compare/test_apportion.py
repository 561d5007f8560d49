"""Whole numbers that sum to a whole."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from nsysflow.compare.apportion import apportioned

THIRD = Fraction(1, 3)


def test_what_is_missing_goes_to_the_largest_remainder() -> None:
    parts = {"a": 2 + THIRD, "b": 3 + 2 * THIRD}
    assert apportioned(parts, 6) == {"a": 2, "b": 4}


def test_of_equal_remainders_the_first_gets_more() -> None:
    assert apportioned({"a": Fraction(1, 2), "b": Fraction(1, 2)}, 1) == {"a": 1, "b": 0}


def test_parts_below_zero_are_rounded_down_first() -> None:
    assert apportioned({"a": -1 - THIRD, "b": 2 + THIRD}, 1) == {"a": -1, "b": 2}


@given(st.lists(st.fractions(-1_000, 1_000, max_denominator=50), min_size=1, max_size=9))
def test_parts_sum_to_the_rounded_whole_and_are_less_than_one_off(parts: list[Fraction]) -> None:
    exact = dict(enumerate(parts))
    total = round(sum(parts))
    found = apportioned(exact, total)
    assert sum(found.values()) == total
    assert all(abs(found[key] - part) <= 1 for key, part in exact.items())
