"""All pairwise differences, in order, without a list of them."""

from itertools import chain
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.compare import shift
from nsysflow.compare.shift import COMPLETE, differences_at, half_width, median_difference
from tests.oracle import comparing as oracle

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
