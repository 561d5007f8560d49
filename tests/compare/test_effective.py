"""What steps are worth that follow each other."""

import pytest
from hypothesis import given

from nsysflow.compare.effective import of_ranks, of_values, smallest_count
from tests.compare.samples import durations_ns
from tests.oracle import comparing as oracle


@given(durations_ns)
def test_steps_are_worth_what_the_oracle_says(steps: list[int]) -> None:
    assert of_ranks(steps).effective == pytest.approx(oracle.effective_steps(steps), rel=1e-12)


@given(durations_ns)
def test_only_the_order_of_durations_counts(steps: list[int]) -> None:
    assert of_ranks([step**2 for step in steps]) == of_ranks(steps)


@given(durations_ns)
def test_steps_are_worth_one_to_all_of_them(steps: list[int]) -> None:
    assert 1 <= of_ranks(steps).effective <= len(steps)


def test_a_sample_without_steps_is_worth_nothing() -> None:
    assert of_ranks([]).effective == 0


def test_ten_steps_by_hand() -> None:
    # ranks 1 6 2 7 3 8 4 9 5 10, less their mean of 5.5: the products of neighbours sum to -32.25,
    # the squares to 82.5; rho = -0.391 + 5/10 = 0.109
    found = of_ranks([10, 60, 20, 70, 30, 80, 40, 90, 50, 100])
    assert found.lag_1 == -32.25 / 82.5
    assert found.effective == pytest.approx(10 * 0.890909 / 1.109091, rel=1e-5)


def test_equal_values_have_the_mean_of_their_ranks() -> None:
    # ranks 3 3 3 3 3 8 8 8 8 8: eight of nine pairs agree, each off by 2.5
    assert of_ranks([7] * 5 + [9] * 5).lag_1 == (8 - 1) / 10


def test_a_mean_is_of_values_and_not_of_ranks() -> None:
    steps = [1.0] * 9 + [100.0, 2.0, 1.0]
    assert of_values(steps, sum(steps) / 12).lag_1 != of_ranks(steps).lag_1


@pytest.mark.parametrize("limit", [1, 2, 17, 1_000_003])
def test_the_smallest_count_is_found(limit: int) -> None:
    assert smallest_count(lambda count: count >= limit) == limit
