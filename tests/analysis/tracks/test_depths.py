"""Depths of slices on a lane."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.analysis.tracks.depths import depths
from tests.oracle.tracks import first_free

SCHEMA = {"lane": pl.UInt32, "start_ns": pl.Int64, "end_ns": pl.Int64}

Slice = tuple[int, int, int]


def depths_of(*rows: Slice) -> list[int]:
    return depths(pl.DataFrame(rows, schema=SCHEMA, orient="row")).to_list()


def test_slices_that_overlap_nothing_have_depth_0() -> None:
    assert depths_of((0, 0, 5), (0, 5, 9), (0, 12, 12), (0, 12, 13)) == [0, 0, 0, 0]


def test_a_nested_slice_is_as_deep_as_there_are_slices_around_it() -> None:
    assert depths_of((0, 0, 9), (0, 1, 5), (0, 2, 3), (0, 6, 7), (0, 10, 11)) == [0, 1, 2, 1, 0]


def test_slices_that_overlap_without_nesting_take_the_first_free_depth() -> None:
    assert depths_of((0, 0, 5), (0, 3, 8), (0, 5, 9), (0, 6, 7), (0, 9, 10)) == [0, 1, 0, 2, 0]


def test_a_slice_of_no_length_inside_another_does_not_hide_in_it() -> None:
    assert depths_of((0, 0, 5), (0, 0, 0), (0, 3, 3), (0, 5, 5)) == [0, 1, 1, 0]


def test_a_lane_does_not_push_down_the_slices_of_the_next() -> None:
    assert depths_of((0, 0, 9), (1, 3, 5), (1, 4, 6)) == [0, 0, 1]


_SLICES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 12)))


@given(_SLICES)
def test_every_slice_takes_the_first_free_depth_of_its_lane(drawn: list[Slice]) -> None:
    rows = sorted(
        ((lane, start, start + length) for lane, start, length in drawn),
        key=lambda row: (row[0], row[1], -row[2]),
    )
    expected = [
        depth
        for lane in range(3)
        for depth in first_free(row[1:] for row in rows if row[0] == lane)
    ]
    assert depths_of(*rows) == expected
