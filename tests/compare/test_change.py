from itertools import chain
from math import isnan, log
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsysflow.compare import statistics
from nsysflow.compare.change import Middle, change_of, mean_step, median_step, needed_for
from nsysflow.compare.statistics import (
    COMPLETE,
    differences_at,
    half_width,
    mean_change_interval,
    mean_ratio_interval,
    median_difference,
    of_ranks,
    two_sided_t,
)
from tests.analyses import EXAMPLES
from tests.oracle import comparing as oracle
from tests.oracle.comparing import t_quantile

durations_ns = st.one_of(
    st.lists(st.integers(1, 12), min_size=1, max_size=40),  # with many ties
    st.lists(st.integers(900_000, 1_100_000), min_size=8, max_size=40),
    st.integers(1, 10**9).map(lambda each: [each] * 12),
    st.integers(8, 40).map(lambda count: [1_000 + 7 * at for at in range(count)]),
    # neighbours that alternate tell most
    st.integers(1_000, 2_000).map(lambda each: [each, each + 30, each - 20, each + 50] * 6),
)
sides = st.one_of(
    durations_ns.map(lambda run: [run]), st.lists(durations_ns, min_size=2, max_size=5)
)
"""Step durations, as runs: short and long, tied, constant and drifting."""

Runs = list[list[int]]
some = settings(max_examples=5 * EXAMPLES)

STEADY = [1_000, 1_030, 980, 1_050, 1_010] * 8
"""Steps that hop around their median: their ranks are not autocorrelated."""

NO_CHANGE, TOO_FEW = "no significant change", "not enough steps"


def log_of(percent: float) -> float:
    return log(1 + percent / 100)


@given(sides, sides)
def test_the_change_is_that_of_the_oracle(base: Runs, new: Runs) -> None:
    found = change_of(base, new)
    interval, shift = oracle.interval(base, new), oracle.shift(base, new)
    floor = oracle.floor_of(base, new)
    assert found.verdict == oracle.verdict(base, new)
    assert log_of(found.shift_pct) == pytest.approx(shift, abs=1e-9)
    assert log_of(found.floor_pct) == pytest.approx(floor, abs=1e-9)
    if len(base) == len(new) == 1:
        steps = len(base[0]), len(new[0])
        worth = oracle.effective_steps(base[0]), oracle.effective_steps(new[0])
        assert (found.unit, found.base_count, found.new_count) == ("step", *steps)
        assert (found.base_sample_size, found.new_sample_size) == pytest.approx(worth, rel=1e-12)
    else:
        assert (found.unit, found.base_count, found.new_count) == ("run", len(base), len(new))
    if interval is None:
        assert found.low_pct is found.high_pct is found.detectable_pct is None
        assert found.needed is not None
        return
    assert found.needed is None
    assert found.low_pct is not None
    assert found.high_pct is not None
    assert found.detectable_pct is not None
    # a t of one degree of freedom turns an ulp of a median into 1e-9
    ends = pytest.approx(interval, rel=1e-6, abs=1e-6)
    assert (log_of(found.low_pct), log_of(found.high_pct)) == ends
    longer_arm = max(shift - interval[0], interval[1] - shift)
    shows = pytest.approx(max(floor, longer_arm), rel=1e-6, abs=1e-6)
    assert log_of(found.detectable_pct) == shows


OPPOSITE = {"better": "worse", "worse": "better"}


@given(sides, sides)
def test_swapped_sides_negate_the_shift(base: Runs, new: Runs) -> None:
    there, back = change_of(base, new), change_of(new, base)
    assert log_of(there.shift_pct) == pytest.approx(-log_of(back.shift_pct), abs=1e-6)
    assert OPPOSITE.get(there.verdict, there.verdict) == back.verdict
    assert there.needed == back.needed


@given(sides)
def test_a_side_did_not_change_against_itself(runs: Runs) -> None:
    found = change_of(runs, runs)
    assert found.shift_pct == 0.0
    assert found.verdict in (NO_CHANGE, TOO_FEW)


def runs(*medians: int) -> Runs:
    return [[each - 1, each, each + 1] for each in medians]


LEVEL = [100_000 + jitter for jitter in (0, 3, -2, 5, 1)] * 8


@pytest.mark.parametrize(
    ("base", "new", "verdict"),
    [
        ([STEADY], [[round(step * 1.05) for step in STEADY]], "worse"),
        # well measured, and below the floor of 1 %
        ([LEVEL], [[round(step * 1.009) for step in LEVEL]], NO_CHANGE),
        (runs(*[1_000] * 3), runs(*[1_009] * 3), NO_CHANGE),
        (runs(*[1_000] * 3), runs(*[1_020] * 3), "worse"),
        (runs(*[1_000] * 3), runs(*[980] * 3), "better"),
        (runs(1_000, 1_010, 1_005), runs(1_200, 1_190, 1_210), "worse"),
        # of 144 differences 60 are 0, and 37 are left out at each end: the interval ends at 0
        ([[100] * 12], [[110, 100] * 5 + [110] * 2], NO_CHANGE),
        # a step of no time counts as 1 ns
        ([[0] * 12], [[1] * 12], NO_CHANGE),
    ],
)
def test_the_verdict_by_hand(base: Runs, new: Runs, verdict: str) -> None:
    assert change_of(base, new).verdict == verdict


@pytest.mark.parametrize(("base", "new"), [(2, 2), (2, 3), (9, 2), (1, 5), (2, 1)])
def test_fewer_runs_are_not_enough(base: int, new: int) -> None:
    found = change_of(runs(*[1_000] * base), runs(*[2_000] * new))
    assert (found.verdict, found.needed) == (TOO_FEW, 3)
    assert found.shift_pct == pytest.approx(100)


@pytest.mark.parametrize(("base", "new"), [([], [[5] * 9]), ([[]], []), ([[5] * 9, [5] * 9], [])])
def test_nothing_is_said_of_a_side_without_steps(base: Runs, new: Runs) -> None:
    found = change_of(base, new)
    assert isnan(found.shift_pct)
    assert found.verdict == TOO_FEW


def assert_same(found: Middle, expected: tuple[float, tuple[float, float] | None]) -> None:
    value, interval = expected
    assert found.value == pytest.approx(value, rel=1e-12)
    assert (found.low is None) == (found.high is None) == (interval is None)
    if interval is not None:
        assert (found.low, found.high) == pytest.approx(interval, rel=1e-6, abs=1e-6)


@some
@given(sides)
def test_the_middle_of_steps_and_of_runs_is_that_of_the_oracle(runs: Runs) -> None:
    found = mean_step(runs)
    assert_same(found, oracle.mean_step(runs))
    several = len(runs) > 1
    assert (found.unit, found.count) == ("run", len(runs)) if several else ("step", len(runs[0]))
    assert_same(median_step(runs[0]), oracle.median_step(runs[0]))
    worth = oracle.effective_steps(runs[0])
    assert of_ranks(runs[0]).sample_size == pytest.approx(worth, rel=1e-12)


HOPPING = [100.0, 130.0, 80.0, 150.0, 110.0] * 8


def test_four_times_the_steps_halve_the_interval() -> None:
    # 40 independent steps: 1.96 / (2 sqrt(40)) = 0.155, so 40 * 0.345 = 13 lie outside on each side
    middle = median_step(HOPPING)
    assert (middle.low, middle.value, middle.high) == (100.0, 110.0, 130.0)
    # their standard deviation is 24.4: 2.02 * 24.4 / sqrt(40) = 7.8
    found = mean_step([HOPPING])
    assert found.value == 114.0
    assert found.high is not None
    reach = found.high - found.value
    assert reach == pytest.approx(7.8, abs=0.05)
    assert needed_for([HOPPING], reach) == 40
    assert needed_for([HOPPING], reach / 2) == 160


@some
@given(sides, sides)
def test_change_and_ratio_of_means_are_the_oracle_s(base: Runs, new: Runs) -> None:
    for found, expected, near in (
        (mean_change_interval(base, new), oracle.mean_change(base, new), 1e-6),
        (mean_ratio_interval(base, new), oracle.mean_ratio(base, new), None),
    ):
        assert found == (expected and pytest.approx(expected, rel=1e-6, abs=near))


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


@pytest.mark.parametrize("df", [1, 1.3, 2.5, 7.9, 40.1, 900])
def test_t_is_that_of_the_integrated_density(df: float) -> None:
    assert two_sided_t(0.05, df) == pytest.approx(t_quantile(0.05, df), rel=1e-8)
