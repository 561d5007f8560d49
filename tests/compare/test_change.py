"""Did the step change, and what is typical."""

from math import isnan, log
from random import Random

import pytest
from hypothesis import given

from nsysflow.compare.change import Change, change_of, needed_for, typical
from tests.compare.samples import durations_ns, sides
from tests.oracle import comparing as oracle

STEADY = [1_000, 1_030, 980, 1_050, 1_010] * 8
"""Steps that hop around their median: their ranks are not autocorrelated."""


def log_of(percent: float) -> float:
    return log(1 + percent / 100)


def slower(steps: list[int], factor: float) -> list[int]:
    return [round(step * factor) for step in steps]


@given(sides, sides)
def test_the_change_is_that_of_the_oracle(base: list[list[int]], new: list[list[int]]) -> None:
    found = change_of(base, new)
    interval = oracle.interval(base, new)
    assert found.verdict == oracle.verdict(base, new)
    assert log_of(found.shift_pct) == pytest.approx(oracle.shift(base, new), abs=1e-9)
    assert log_of(found.floor_pct) == pytest.approx(oracle.floor_of(base, new), abs=1e-9)
    assert (found.low_pct is None) == (interval is None)
    if found.low_pct is not None and found.high_pct is not None and interval is not None:
        # a t of one degree of freedom turns an ulp of a median into 1e-9
        assert log_of(found.low_pct) == pytest.approx(interval[0], rel=1e-6, abs=1e-6)
        assert log_of(found.high_pct) == pytest.approx(interval[1], rel=1e-6, abs=1e-6)


OPPOSITE = {"better": "worse", "worse": "better"}


@given(sides, sides)
def test_swapped_sides_negate_the_shift(base: list[list[int]], new: list[list[int]]) -> None:
    there, back = change_of(base, new), change_of(new, base)
    assert log_of(there.shift_pct) == pytest.approx(-log_of(back.shift_pct), abs=1e-6)
    assert OPPOSITE.get(there.verdict, there.verdict) == back.verdict
    assert there.needed == back.needed


@given(durations_ns, durations_ns)
def test_a_slowdown_of_the_new_side_shifts_by_as_much(base: list[int], new: list[int]) -> None:
    before, after = change_of([base], [new]), change_of([base], [[3 * step for step in new]])
    assert log_of(after.shift_pct) == pytest.approx(log_of(before.shift_pct) + log(3), abs=1e-6)
    assert after.base_sample_size == before.base_sample_size
    assert after.new_sample_size == before.new_sample_size


@given(sides)
def test_a_side_did_not_change_against_itself(runs: list[list[int]]) -> None:
    found = change_of(runs, runs)
    assert found.shift_pct == 0.0
    assert found.verdict in ("no significant change", "not enough steps")


@given(sides, sides)
def test_the_order_of_runs_does_not_matter(base: list[list[int]], new: list[list[int]]) -> None:
    assert change_of(base[::-1], new) == change_of(base, new) == change_of(base, new[::-1])


@given(durations_ns, durations_ns)
def test_the_order_of_steps_changes_only_what_they_are_worth(
    base: list[int], new: list[int]
) -> None:
    shuffled = Random(0).sample(new, len(new))
    before, after = change_of([base], [new]), change_of([base], [shuffled])
    assert after.shift_pct == before.shift_pct
    assert after.base_sample_size == before.base_sample_size
    assert after.floor_pct == before.floor_pct


@given(sides, sides)
def test_the_interval_contains_the_shift(base: list[list[int]], new: list[list[int]]) -> None:
    found = change_of(base, new)
    if found.low_pct is not None and found.high_pct is not None:
        assert found.low_pct <= found.shift_pct <= found.high_pct


@given(sides, sides)
def test_a_number_is_needed_where_there_are_not_enough(
    base: list[list[int]], new: list[list[int]]
) -> None:
    found = change_of(base, new)
    enough = found.verdict != "not enough steps"
    assert (found.needed is None) == enough
    assert (found.detectable_pct is None) != enough


def test_a_slowdown_beyond_the_noise_is_worse() -> None:
    found = change_of([STEADY], [slower(STEADY, 1.05)])
    assert found.verdict == "worse"
    assert found.shift_pct == pytest.approx(5, abs=0.1)
    assert found.unit == "step"


def test_a_change_below_1_percent_is_none_however_sure_it_is() -> None:
    steps = [100_000 + jitter for jitter in (0, 3, -2, 5, 1)] * 8
    found = change_of([steps], [slower(steps, 1.009)])
    assert found.low_pct is not None
    assert found.low_pct > 0
    assert found.verdict == "no significant change"
    assert found.detectable_pct == found.floor_pct == pytest.approx(1)


def test_the_longer_arm_of_the_interval_is_detectable() -> None:
    noisy = [1_000, 1_300, 800, 1_500, 1_100] * 8
    skewed = [1_000, 1_250, 900, 3_000, 1_150] * 8
    found = change_of([noisy], [skewed])
    assert found.low_pct is not None
    assert found.high_pct is not None
    assert found.detectable_pct is not None
    shift = log_of(found.shift_pct)
    arms = shift - log_of(found.low_pct), log_of(found.high_pct) - shift
    assert arms[0] != pytest.approx(arms[1])
    assert log_of(found.detectable_pct) == pytest.approx(max(arms))
    assert found.detectable_pct > found.floor_pct


@given(sides, sides)
def test_a_shift_that_is_not_significant_is_below_what_can_show(
    base: list[list[int]], new: list[list[int]]
) -> None:
    found = change_of(base, new)
    if found.verdict == "no significant change":
        assert found.detectable_pct is not None
        assert abs(log_of(found.shift_pct)) <= log_of(found.detectable_pct) + 1e-9


def test_an_interval_that_ends_at_0_is_no_change() -> None:
    # of 144 differences 60 are 0, and 37 are left out at each end
    found = change_of([[100] * 12], [[110, 100] * 5 + [110] * 2])
    assert (found.low_pct, found.verdict) == (0, "no significant change")
    assert found.shift_pct == pytest.approx(10)


def test_steps_that_follow_each_other_are_worth_fewer() -> None:
    drifting = [1_000 + 10 * at for at in range(40)]
    assert change_of([STEADY], [drifting]).new_sample_size < 2
    assert change_of([STEADY], [STEADY]).new_sample_size > 20


def test_equal_steps_are_worth_what_they_are() -> None:
    found = change_of([[10] * 12], [[20] * 12])
    assert (found.base_sample_size, found.new_sample_size) == (12, 12)
    assert found.verdict == "worse"
    assert found.low_pct == found.high_pct == pytest.approx(100)


@pytest.mark.parametrize("steps", [[], [5], [5, 6], [5, 9, 5], [5, 7, 5, 6], [9, 8, 7, 9, 8]])
def test_five_steps_are_never_enough(steps: list[int]) -> None:
    found = change_of([steps], [STEADY])
    assert found.verdict == "not enough steps"
    assert found.low_pct is found.high_pct is found.detectable_pct is None
    assert found.needed == 16


@pytest.mark.parametrize(("base", "new"), [([], [[5] * 9]), ([[]], []), ([[5] * 9, [5] * 9], [])])
def test_nothing_is_said_of_a_side_without_steps(
    base: list[list[int]], new: list[list[int]]
) -> None:
    found = change_of(base, new)
    assert isnan(found.shift_pct)
    assert found.verdict == "not enough steps"


def test_a_run_without_steps_does_not_count() -> None:
    assert change_of([STEADY, []], [[], STEADY]) == change_of([STEADY], [STEADY])


def runs(*medians: int) -> list[list[int]]:
    return [[each - 1, each, each + 1] for each in medians]


def by_runs(base: list[list[int]], new: list[list[int]]) -> Change:
    found = change_of(base, new)
    assert found.unit == "run"
    return found


def test_two_runs_against_three_are_enough() -> None:
    found = by_runs(runs(1_000, 1_010), runs(1_200, 1_190, 1_210))
    assert found.verdict == "worse"
    assert found.shift_pct == pytest.approx(19.4, abs=0.1)


@pytest.mark.parametrize(("base", "new"), [(2, 2), (1, 2), (1, 5), (5, 1), (2, 1)])
def test_fewer_runs_are_not_enough(base: int, new: int) -> None:
    found = by_runs(runs(*[1_000] * base), runs(*[2_000] * new))
    assert found.verdict == "not enough steps"
    assert found.needed == 3
    assert found.shift_pct == pytest.approx(100)


def test_a_shift_within_the_noise_of_runs_is_no_change() -> None:
    base, new = runs(1_000, 1_080, 920, 1_030, 970), runs(1_050, 1_130, 970, 1_080, 1_020)
    assert by_runs(base, new).verdict == "no significant change"
    assert by_runs(base, new).floor_pct == pytest.approx(6.1, abs=0.5)


def test_runs_without_noise_tell_any_change_above_the_floor() -> None:
    assert by_runs(runs(*[1_000] * 3), runs(*[1_020] * 3)).verdict == "worse"
    assert by_runs(runs(*[1_000] * 3), runs(*[1_009] * 3)).verdict == "no significant change"
    assert by_runs(runs(*[1_000] * 3), runs(*[980] * 3)).verdict == "better"


def test_a_step_of_no_time_counts_as_1_ns() -> None:
    assert change_of([[0] * 12], [[1] * 12]).shift_pct == 0.0


HOPPING = [100.0, 130.0, 80.0, 150.0, 110.0] * 8


@given(sides)
def test_the_typical_step_is_that_of_the_oracle(runs: list[list[int]]) -> None:
    found, (value, interval) = typical(runs), oracle.typical(runs)
    assert found.value == pytest.approx(value, rel=1e-12)
    assert (found.low is None) == (found.high is None) == (interval is None)
    if interval is not None:
        assert (found.low, found.high) == pytest.approx(interval, rel=1e-6, abs=1e-6)


@given(sides)
def test_the_order_of_runs_does_not_matter_for_a_typical_step(runs: list[list[int]]) -> None:
    assert typical(runs) == typical(runs[::-1])


def test_the_interval_of_a_median_by_hand() -> None:
    # 40 independent steps: 1.96 / (2 sqrt(40)) = 0.155, so 40 * 0.345 = 13 lie outside on each side
    found = typical([HOPPING])
    assert found.sample_size == 40
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
    assert (found.unit, found.count, found.sample_size) == ("run", 3, 3)


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
