from collections.abc import Callable
from dataclasses import asdict

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.report.html.columns import Packed, packed, packed_deltas
from tests.report.html.unpacked import values_of

COUNTS = st.lists(st.integers(0, 2**53), max_size=20)


def read(column: Packed | None, count: int) -> list[float]:
    if column is None:
        return [0] * count
    return values_of(column.data, asdict(column))


@given(COUNTS)
@pytest.mark.parametrize("pack", [packed, packed_deltas])
def test_a_column_is_read_back_as_it_was(
    pack: Callable[[pl.Series], Packed | None], numbers: list[int]
) -> None:
    column = pack(pl.Series(numbers, dtype=pl.Int64))
    assert read(column, len(numbers)) == numbers


@pytest.mark.parametrize(
    ("most", "kind"),
    [(255, "u8"), (256, "u16"), (65_535, "u16"), (65_536, "u32"), (2**32, "f64"), (2**53, "f64")],
)
def test_a_column_has_the_smallest_type_that_holds_it(most: int, kind: str) -> None:
    column = packed(pl.Series([0, most]))
    assert column is not None
    assert column.type == kind


@pytest.mark.parametrize(
    ("numbers", "jumps"),
    [
        ([5, 2], ()),
        ([2**31 - 1, 0], ()),
        ([2**31], ((0, 2**31),)),
        ([2**53, 7, 2**40], ((0, 2**53), (1, 7 - 2**53), (2, 2**40 - 7))),
    ],
)
def test_a_difference_that_does_not_fit_stands_by_itself(
    numbers: list[int], jumps: tuple[tuple[int, int], ...]
) -> None:
    column = packed_deltas(pl.Series(numbers))
    assert column is not None
    assert (column.type, column.jumps) == ("i32", jumps)


@pytest.mark.parametrize("pack", [packed, packed_deltas])
@pytest.mark.parametrize("numbers", [[], [0], [0, 0]])
def test_a_column_of_zeros_is_left_out(
    pack: Callable[[pl.Series], Packed | None], numbers: list[int]
) -> None:
    assert pack(pl.Series(numbers, dtype=pl.Int64)) is None
