"""How well the difference of two means is known."""

from statistics import fmean

import pytest
from hypothesis import given

from nsysflow.compare.means import mean_change_interval
from tests.compare.samples import sides
from tests.oracle import comparing as oracle

HOPPING = [100.0, 130.0, 80.0, 150.0, 110.0] * 8


@given(sides, sides)
def test_the_interval_is_that_of_the_oracle(base: list[list[int]], new: list[list[int]]) -> None:
    found, expected = mean_change_interval(base, new), oracle.mean_change(base, new)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(sides, sides)
def test_swapped_sides_negate_the_interval(base: list[list[int]], new: list[list[int]]) -> None:
    there, back = mean_change_interval(base, new), mean_change_interval(new, base)
    assert (there is None) == (back is None)
    if there is not None and back is not None:
        assert there == pytest.approx((-back[1], -back[0]), rel=1e-9)


def test_the_interval_of_steps_by_hand() -> None:
    # 40 independent steps: 584/39 is the variance of a mean; t of 78 degrees of freedom 1.9908
    off = 1.9908 * (2 * 584 / 39) ** 0.5
    assert fmean((value - 114) ** 2 for value in HOPPING) == 584
    found = mean_change_interval([HOPPING], [[value + 7 for value in HOPPING]])
    assert found == pytest.approx((7 - off, 7 + off), abs=1e-3)


def test_values_that_follow_each_other_widen_the_interval() -> None:
    hopping = mean_change_interval([HOPPING], [HOPPING])
    in_order = mean_change_interval([sorted(HOPPING)], [HOPPING])
    assert hopping is not None
    assert in_order is None or in_order[1] > hopping[1]


def test_equal_values_have_a_sure_difference() -> None:
    assert mean_change_interval([[0.0] * 12], [[3.0] * 12]) == (3.0, 3.0)


@pytest.mark.parametrize(("base", "new"), [(0, 1), (1, 0), (1, 2), (2, 2), (1, 5)])
def test_fewer_runs_tell_nothing(base: int, new: int) -> None:
    assert mean_change_interval([HOPPING] * base, [HOPPING] * new) is None


def test_few_steps_tell_nothing() -> None:
    assert mean_change_interval([[1.0, 2.0, 3.0]], [HOPPING]) is None
