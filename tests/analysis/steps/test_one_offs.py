"""Which steps are much longer than those around them."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.analysis.steps.one_offs import with_excess
from tests.oracle.steps import excesses, one_offs


def judged(*durations: int) -> tuple[list[int], list[bool]]:
    """The excess of each duration, and whether it is an outlier."""
    steps = pl.DataFrame(
        {"process": [1] * len(durations), "device_no": [0] * len(durations)},
        schema={"process": pl.Int64, "device_no": pl.UInt32},
    ).with_columns(pl.Series("duration_ns", durations, pl.Int64))
    found = with_excess(steps)
    return found["excess_ns"].to_list(), found["outlier"].to_list()


def outliers(*durations: int) -> list[int]:
    return [place for place, is_one in enumerate(judged(*durations)[1]) if is_one]


def test_a_step_of_twice_the_time_of_four_others_is_one() -> None:
    assert outliers(100, 100, 200, 100, 100) == [2]
    assert judged(100, 100, 200, 100, 100)[0] == [0, 0, 100, 0, 0]


def test_of_four_steps_none_is() -> None:
    assert outliers(100, 100, 900, 100) == []


def test_twenty_percent_more_are_not_enough() -> None:
    assert outliers(100, 100, 120, 100, 100) == []
    assert outliers(100, 100, 121, 100, 100) == [2]


def test_five_times_what_steps_vary_by_is_not_enough() -> None:
    assert outliers(90, 110, 90, 110, 100, 100, 150) == []
    assert outliers(90, 110, 90, 110, 100, 100, 151) == [6]


def test_a_short_step_is_none() -> None:
    assert outliers(100, 100, 1, 100, 100) == []


def test_steps_that_grow_longer_are_compared_with_those_around_them() -> None:
    growing = [100 + 10 * step for step in range(60)]
    assert outliers(*growing) == []
    growing[30] += 200  # to 600, less than the last ones take
    assert outliers(*growing) == [30]


def test_the_first_step_is_compared_with_the_nine_first() -> None:
    assert judged(*[300] + [100] * 4 + [200] * 20)[0][0] == 300 - 200
    assert judged(*[300] + [100] * 5 + [200] * 20)[0][0] == 300 - 100


def test_processes_are_judged_apart() -> None:
    steps = pl.DataFrame({"process": [1] * 5 + [2] * 5, "duration_ns": [10] * 5 + [90] * 5})
    found = with_excess(steps.with_columns(pl.lit(0, pl.UInt32).alias("device_no")))
    assert not found["outlier"].any()


@given(st.lists(st.sampled_from((0, 1, 99, 100, 101, 119, 120, 121, 200, 1000)), max_size=30))
def test_the_oracle_finds_the_same(durations: list[int]) -> None:
    assert judged(*durations) == (excesses(durations), one_offs(durations))
