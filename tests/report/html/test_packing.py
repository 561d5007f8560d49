"""Columns of numbers, packed and read back."""

from collections.abc import Callable

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.report.html.packing import Packed, packed, packed_deltas
from tests.report.html.unpacked import values_of

COUNTS = st.lists(st.integers(0, 2**53), max_size=20)


def read(column: Packed | None, count: int) -> list[float]:
    if column is None:
        return [0] * count
    return values_of(column.data, {"type": column.type, "delta": column.delta})


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
    ("numbers", "kind"),
    [([5, 2], "i32"), ([2**31 - 1, 0], "i32"), ([2**31], "f64"), ([0, 2**31, 0], "f64")],
)
def test_differences_have_a_type_that_holds_them_all(numbers: list[int], kind: str) -> None:
    column = packed_deltas(pl.Series(numbers))
    assert column is not None
    assert column.type == kind


@pytest.mark.parametrize("pack", [packed, packed_deltas])
@pytest.mark.parametrize("numbers", [[], [0], [0, 0]])
def test_a_column_of_zeros_is_left_out(
    pack: Callable[[pl.Series], Packed | None], numbers: list[int]
) -> None:
    assert pack(pl.Series(numbers, dtype=pl.Int64)) is None


def test_bytes_of_the_same_weight_lie_together() -> None:
    column = packed(pl.Series([0x0102, 0x0304]))
    assert column is not None
    assert column.data == bytes([2, 4, 1, 3])
