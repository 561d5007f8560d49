"""One-offs that come back every k-th step."""

from collections import defaultdict

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.analysis.steps.periods import with_period
from tests.oracle.step_groups import periods


def found(*steps: int, places: str = "") -> list[tuple[list[int], int]]:
    """The steps of each period, and how far they are apart."""
    frame = pl.DataFrame(
        {"step": list(steps), "phase": [*(places or "x" * len(steps))]},
        schema={"step": pl.Int64, "phase": pl.String},
    )
    groups: dict[int, list[int]] = defaultdict(list)
    every: dict[int, int] = {}
    for row in with_period(frame, ["phase"]).sort("step").to_dicts():
        if row["period"] is not None:
            groups[row["period"]].append(row["step"])
            every[row["period"]] = row["every"]
        else:
            assert row["every"] is None
    return sorted((groups[period], every[period]) for period in groups)


def test_three_at_equal_distances_are_a_period() -> None:
    assert found(9, 19, 29) == [([9, 19, 29], 10)]


def test_two_are_none() -> None:
    assert found(9, 19) == []


def test_steps_in_a_row_are_none() -> None:
    assert found(4, 5, 6, 7) == []


def test_one_at_another_distance_stays_alone() -> None:
    assert found(0, 9, 19, 29) == [([9, 19, 29], 10)]
    assert found(9, 19, 29, 30) == [([9, 19, 29], 10)]


def test_what_is_at_another_place_does_not_interrupt() -> None:
    assert found(9, 12, 19, 29, places="abaa") == [([9, 19, 29], 10)]


def test_a_step_belongs_to_the_first_period_only() -> None:
    assert found(0, 10, 20, 25, 30) == [([0, 10, 20], 10)]
    assert found(0, 10, 20, 25, 30, 35) == [([0, 10, 20], 10), ([25, 30, 35], 5)]


@given(st.sets(st.integers(0, 24)))
def test_the_oracle_finds_the_same(steps: set[int]) -> None:
    runs = periods(sorted(steps))
    assert found(*sorted(steps)) == [(run, run[1] - run[0]) for run in runs]
