"""From parts to a bound (spec §15.8)."""

import polars as pl
import pytest

from nsysflow.analysis.bound.rule import PARTS, bounds


def bound_of(**parts: int) -> tuple[str, float | None]:
    row = pl.DataFrame([{f"{name}_ns": parts.get(name, 0) for name in PARTS}])
    name, pct = bounds(row).row(0)
    return name, pct


@pytest.mark.parametrize("name", PARTS)
def test_the_only_part_is_the_bound(name: str) -> None:
    assert bound_of(**{name: 7}) == (name, 100)


def test_parts_within_a_factor_of_1_2_join_the_largest_by_size() -> None:
    assert bound_of(host=50, compute=60, sync=49) == ("compute+host", 100 * 60 / 159)


def test_no_more_than_three_join_and_ties_are_in_the_order_of_the_parts() -> None:
    assert bound_of(launch=5, host=5, copies=5, compute=5) == ("compute+copies+host", 25)


def test_below_a_tenth_nothing_bounds() -> None:
    many = dict.fromkeys(PARTS[:11], 1)
    assert bound_of(**many) == ("", None)
    assert bound_of(**dict.fromkeys(PARTS[:10], 1))[1] == 10


def test_no_time_has_no_bound() -> None:
    assert bound_of() == ("", None)
    assert bounds(pl.DataFrame(schema={f"{name}_ns": pl.Int64() for name in PARTS})).is_empty()
