from itertools import chain
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.compare import statistics
from nsysflow.compare.statistics import (
    COMPLETE,
    beyond,
    differences_at,
    half_width,
    mean_change_interval,
    mean_ratio_interval,
    median_difference,
    of_ranks,
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


@pytest.mark.parametrize("limit", [1, 2, 17, 1_000_003])
def test_the_smallest_count_is_found(limit: int) -> None:
    assert smallest_count(lambda count: count >= limit) == limit


@given(sides, sides)
def test_the_interval_is_that_of_the_oracle(base: list[list[int]], new: list[list[int]]) -> None:
    found, expected = mean_change_interval(base, new), oracle.mean_change(base, new)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(sides, sides)
def test_the_ratio_of_the_means_is_that_of_the_oracle(
    base: list[list[int]], new: list[list[int]]
) -> None:
    found, expected = mean_ratio_interval(base, new), oracle.mean_ratio(base, new)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found == pytest.approx(expected, rel=1e-6)


def test_of_what_takes_no_time_any_more_the_ratio_is_nothing() -> None:
    assert mean_ratio_interval([[5, 5, 5] * 9], [[0, 0, 0] * 9]) == pytest.approx((0, 0))


def test_nothing_is_known_without_steps() -> None:
    assert of_ranks([]).sample_size == 0
    assert half_width(0, 40) > COMPLETE
    assert mean_change_interval([], [[1.0] * 12]) is mean_change_interval([[1.0] * 12], []) is None


values = st.lists(st.floats(0, 30) | st.integers(0, 6), min_size=1, max_size=12)


@pytest.fixture(params=[1, 4])
def narrowed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small samples are treated like those with too many pairs for a list."""
    monkeypatch.setattr(statistics, "_FEW", request.param)


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
    assert median_difference([1.0] * 20_000, [3.0] * 20_000) == 2.0


@pytest.mark.parametrize(("base", "new"), [(4, 4), (3.5, 40), (100, 60.25)])
def test_the_width_is_that_of_the_oracle(base: float, new: float) -> None:
    assert half_width(base, new) == pytest.approx(oracle.half_width(base, new), rel=1e-12)


@pytest.mark.parametrize(
    ("alpha", "df", "t"),
    [
        (0.05, 1, 12.7062),
        (0.05, 2, 4.30265),
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


def test_t_of_many_degrees_of_freedom_is_normal() -> None:
    assert two_sided_t(0.05, 1e8) == pytest.approx(two_sided_normal(0.05), rel=1e-4)
    assert beyond(0.0, 3) == 1.0
