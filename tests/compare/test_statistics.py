"""Means, medians and their errors."""

from itertools import chain
from random import Random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.compare import statistics as shift
from nsysflow.compare.statistics import (
    COMPLETE,
    beyond,
    differences_at,
    half_width,
    mean_change_interval,
    median_difference,
    of_ranks,
    of_values,
    smallest_count,
    two_sided_normal,
    two_sided_t,
)
from tests.compare.samples import durations_ns, sides
from tests.oracle import comparing as oracle
from tests.oracle.comparing import t_quantile


@given(durations_ns)
def test_steps_are_worth_what_the_oracle_says(steps: list[int]) -> None:
    assert of_ranks(steps).sample_size == pytest.approx(oracle.effective_steps(steps), rel=1e-12)


@given(durations_ns)
def test_only_the_order_of_durations_counts(steps: list[int]) -> None:
    assert of_ranks([step**2 for step in steps]) == of_ranks(steps)


@given(durations_ns)
def test_steps_are_worth_one_to_all_of_them(steps: list[int]) -> None:
    assert 1 <= of_ranks(steps).sample_size <= len(steps)


def test_a_sample_without_steps_is_worth_nothing() -> None:
    assert of_ranks([]).sample_size == 0


def test_ten_steps_by_hand() -> None:
    # ranks 1 6 2 7 3 8 4 9 5 10, less their mean of 5.5: the products of neighbours sum to -32.25,
    # the squares to 82.5; rho = -0.391 + 5/10 = 0.109
    found = of_ranks([10, 60, 20, 70, 30, 80, 40, 90, 50, 100])
    assert found.lag_1 == -32.25 / 82.5
    assert found.sample_size == pytest.approx(10 * 0.890909 / 1.109091, rel=1e-5)


def test_equal_values_have_the_mean_of_their_ranks() -> None:
    # ranks 3 3 3 3 3 8 8 8 8 8: eight of nine pairs agree, each off by 2.5
    assert of_ranks([7] * 5 + [9] * 5).lag_1 == (8 - 1) / 10


def test_a_mean_is_of_values_and_not_of_ranks() -> None:
    steps = [1.0] * 9 + [100.0, 2.0, 1.0]
    assert of_values(steps, sum(steps) / 12).lag_1 != of_ranks(steps).lag_1


@pytest.mark.parametrize("limit", [1, 2, 17, 1_000_003])
def test_the_smallest_count_is_found(limit: int) -> None:
    assert smallest_count(lambda count: count >= limit) == limit


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


values = st.lists(st.floats(0, 30) | st.integers(0, 6), min_size=1, max_size=12)


@pytest.fixture(params=[1, 4])
def narrowed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small samples are treated like those with too many pairs for a list."""
    monkeypatch.setattr(shift, "_FEW", request.param)


@pytest.mark.usefixtures("narrowed")
def test_each_difference_is_found_at_its_rank() -> None:
    @given(values, values)
    def check(base: list[float], new: list[float]) -> None:
        base, new = sorted(base), sorted(new)
        listed = sorted(other - one for one in base for other in new)
        assert differences_at(base, new, range(1, len(listed) + 1)) == listed

    check()


def test_many_pairs_have_the_median_of_all() -> None:
    random = Random(0)
    base = sorted(random.lognormvariate(0, 0.1) for _ in range(700))
    new = sorted(chain((random.lognormvariate(0, 0.2) for _ in range(600)), [1.0] * 100, [1e6]))
    listed = sorted(other - one for one in base for other in new)
    middle = len(listed) // 2
    assert median_difference(base, new) == (listed[middle - 1] + listed[middle]) / 2


def test_many_equal_differences_are_one() -> None:
    assert median_difference([1.0] * 20_000, [3.0] * 20_000) == 2.0


@pytest.mark.parametrize(("count", "enough"), [(3, False), (4, True)])
def test_so_many_independent_steps_a_side_are_enough(count: int, enough: bool) -> None:
    # exactly, 3 a side are on their own sides in 2 of 20 orders, 4 in 2 of 70
    assert (half_width(count, count) <= COMPLETE) is enough


def test_nothing_is_significant_without_steps() -> None:
    assert half_width(0, 40) > COMPLETE


@pytest.mark.parametrize(("base", "new"), [(4, 4), (3.5, 40), (100, 60.25)])
def test_the_width_is_that_of_the_oracle(base: float, new: float) -> None:
    assert half_width(base, new) == pytest.approx(oracle.half_width(base, new), rel=1e-12)


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
