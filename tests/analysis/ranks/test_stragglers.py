"""Where a straggler of several groups begins."""

import polars as pl

from nsysflow.analysis.ranks.stragglers import where_it_starts


def _held_up(group: int, *, saved_step_ns: int) -> dict[str, int | None]:
    """A group that the straggler itself holds up."""
    return {
        "group": group,
        "cost_ns": 1_000,
        "cost_group_ns": 0,
        "through": None,
        "cost_step_ns": 500,
        "saved_step_ns": saved_step_ns,
    }


def _passed_on(group: int, *, through: int) -> dict[str, int | None]:
    """A group that waits because another one does."""
    return {**_held_up(group, saved_step_ns=0), "cost_group_ns": 1_000, "through": through}


def _start(*rows: dict[str, int | None]) -> int:
    groups = pl.DataFrame(rows, schema_overrides={"through": pl.Int64})
    found = where_it_starts(groups.filter(pl.col("cost_group_ns") == 0), groups)
    return int(found["group"])


def test_a_straggler_begins_where_most_other_groups_wait_even_if_another_loses_more() -> None:
    assert (
        _start(
            _held_up(0, saved_step_ns=900),
            _held_up(1, saved_step_ns=100),
            _passed_on(2, through=0),
            _passed_on(3, through=1),
            _passed_on(4, through=1),
        )
        == 1
    )


def test_of_groups_with_equally_many_behind_them_the_one_that_loses_most_is_named() -> None:
    assert (
        _start(
            _held_up(0, saved_step_ns=100),
            _held_up(1, saved_step_ns=900),
            _passed_on(2, through=0),
            _passed_on(3, through=1),
        )
        == 1
    )


def test_of_groups_with_none_behind_them_the_one_that_loses_most_is_named() -> None:
    assert _start(_held_up(0, saved_step_ns=100), _held_up(1, saved_step_ns=900)) == 1
