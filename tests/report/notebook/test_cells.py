"""What a lane shows at few places."""

import polars as pl

from nsysflow.report.notebook import CELLS, LEVELS, Run, runs

Row = tuple[int, int, str]


def lane(*rows: Row) -> pl.DataFrame:
    return pl.DataFrame(rows, ["start_ns", "end_ns", "kind"], orient="row")


def shown(*rows: Row, start_ns: int = 0, end_ns: int = 10 * CELLS) -> list[Run]:
    """Of a picture whose places are 10 ns wide."""
    return runs(lane(*rows), start_ns, end_ns)


def full(first: int, count: int, kind: str) -> Run:
    return Run(first=first, count=count, kind=kind, level=LEVELS)


def test_what_fills_places_is_drawn_there_and_nowhere_else() -> None:
    assert shown((20, 50, "a")) == [full(2, 3, "a")]


def test_neighbours_of_one_kind_are_one_run_and_others_are_not() -> None:
    rows = [(0, 10, "a"), (10, 30, "a"), (30, 40, "b"), (50, 60, "b")]
    assert shown(*rows) == [full(0, 3, "a"), full(3, 1, "b"), full(5, 1, "b")]


def test_a_place_shows_what_takes_most_of_it() -> None:
    assert shown((0, 4, "a"), (4, 10, "b")) == [full(0, 1, "b")]


def test_a_place_is_as_high_as_it_is_full() -> None:
    assert [each.level for each in shown((0, 1, "a"), (10, 15, "a"), (20, 30, "a"))] == [1, 2, 4]


def test_what_overlaps_fills_no_place_twice() -> None:
    assert shown((0, 10, "a"), (0, 10, "a")) == [full(0, 1, "a")]


def test_nothing_is_too_short_to_be_drawn() -> None:
    assert shown((7, 7, "a")) == [Run(first=0, count=1, kind="a", level=1)]


def test_what_lies_outside_is_left_out_and_what_reaches_in_is_cut() -> None:
    rows = [(0, 100, "before"), (90, 120, "a"), (3_000, 9_999, "b"), (9_999, 10_000, "after")]
    found = shown(*rows, start_ns=100, end_ns=100 + 10 * CELLS)
    assert found == [full(0, 2, "a"), full(290, CELLS - 290, "b")]


def test_an_empty_lane_shows_nothing() -> None:
    assert shown() == []
