"""Rows and names by number."""

import polars as pl

from nsysflow.analysis.frames.lookup import by_number, dense, greatest, named


def test_a_table_holds_the_last_value_of_each_number_and_null_elsewhere() -> None:
    table = by_number(4, pl.Series([1, 3, 1]), pl.Series(["a", "b", "c"]))
    assert table.to_list() == [None, "c", None, "b"]


def test_codes_are_numbered_in_their_own_order() -> None:
    assert dense(pl.Series([70, 5, 70, 12])).to_list() == [2, 0, 2, 1]


def test_the_maximum_of_no_values_is_0() -> None:
    assert greatest(pl.Series([], dtype=pl.Int64)) == 0
    assert greatest(pl.Series([3, 9, None])) == 9


def test_words_are_found_by_their_number() -> None:
    words = pl.Enum(["a", "b"])
    assert named(pl.Series("x", [1, None, 0], dtype=pl.UInt8), words).to_list() == ["b", None, "a"]
