"""The typical step and how well it is known."""

from math import isnan

import pytest
from hypothesis import given

from nsysflow.compare.typical import needed_for, typical
from tests.compare.samples import sides
from tests.oracle import comparing as oracle

HOPPING = [100.0, 130.0, 80.0, 150.0, 110.0] * 8


@given(sides)
def test_the_typical_step_is_that_of_the_oracle(runs: list[list[int]]) -> None:
    found, (value, interval) = typical(runs), oracle.typical(runs)
    assert found.value == pytest.approx(value, rel=1e-12)
    assert (found.low is None) == (found.high is None) == (interval is None)
    if interval is not None:
        assert (found.low, found.high) == pytest.approx(interval, rel=1e-6, abs=1e-6)


@given(sides)
def test_the_order_of_runs_does_not_matter(runs: list[list[int]]) -> None:
    assert typical(runs) == typical(runs[::-1])


def test_the_interval_of_a_median_by_hand() -> None:
    # 40 independent steps: 1.96 / (2 sqrt(40)) = 0.155, so 40 * 0.345 = 13 lie outside on each side
    found = typical([HOPPING])
    assert found.effective == 40
    assert (found.low, found.value, found.high) == (100.0, 110.0, 130.0)


def test_values_may_be_0() -> None:
    found = typical([[0.0] * 40])
    assert (found.low, found.value, found.high) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("steps", [[5.0], [5.0, 6.0], [5.0, 9.0, 6.0, 8.0, 5.0]])
def test_few_steps_have_no_interval(steps: list[float]) -> None:
    assert typical([steps]).low is typical([steps]).high is None


def test_two_runs_have_no_interval_and_three_have_one() -> None:
    assert typical([[4.0], [6.0]]).low is None
    found = typical([[4.0], [5.0], [6.0]])
    # the t of 2 degrees of freedom is 4.3027
    assert found.low == pytest.approx(5 - 4.3027 / 3**0.5, abs=1e-4)
    assert (found.unit, found.count, found.effective) == ("run", 3, 3)


@pytest.mark.parametrize("runs", [[], [[]], [[], []]])
def test_there_is_no_typical_step_without_steps(runs: list[list[float]]) -> None:
    found = typical(runs)
    assert isnan(found.value)
    assert (found.count, found.low) == (0, None)
    assert needed_for(runs, 1) is None


def test_four_times_the_steps_halve_the_interval() -> None:
    found = typical([HOPPING])
    assert found.low is not None
    assert found.high is not None
    reach = (found.high - found.low) / 2
    assert needed_for([HOPPING], reach) == 40
    assert needed_for([HOPPING], reach / 2) == 160


def test_no_number_of_steps_reaches_a_distance_of_0() -> None:
    assert needed_for([HOPPING], 0) is None
    assert needed_for([HOPPING], -1) is None


def test_so_many_runs_as_needed_reach_the_distance_and_one_fewer_do_not() -> None:
    spread = [[4.0], [5.0], [6.0]]  # a standard deviation of 1
    runs = needed_for(spread, 0.5)
    assert runs == 18  # 2.11 / sqrt(18) = 0.497; 2.12 / sqrt(17) = 0.514


def test_equal_runs_need_no_more_than_three() -> None:
    assert needed_for([[5.0]] * 2, 0.1) == 3


def test_few_steps_need_at_least_what_has_an_interval() -> None:
    fewest = needed_for([[5.0, 6.0]], 1e9)
    assert fewest is not None
    assert fewest > 10
    assert needed_for([[5.0, 6.0]], 0.05) == 100 * fewest
