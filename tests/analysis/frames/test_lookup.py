"""Rows and names by number, statistics against Python's fractions, and work side by side."""

import time
from fractions import Fraction
from functools import partial

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.analysis.frames.columns import (
    MOST_STRETCHES,
    dense,
    distinct,
    enum_from_index,
    filter_runs,
    greatest,
    median_ns,
    number_in,
    p95_ns,
    percent,
    scatter_table,
    spread,
    std_ns,
    whole_ns,
)
from nsysflow.analysis.frames.parallel import once_for_each, side_by_side
from tests.oracle.stats import mean, percentile, whole


def test_a_table_holds_the_last_value_of_each_number_and_null_elsewhere() -> None:
    table = scatter_table(4, pl.Series([1, 3, 1]), pl.Series(["a", "b", "c"]))
    assert table.to_list() == [None, "c", None, "b"]
    assert dense(pl.Series([70, 5, 70, 12])).to_list() == [2, 0, 2, 1]
    words = enum_from_index(pl.Series("x", [1, None, 0], dtype=pl.UInt8), pl.Enum(["a", "b"]))
    assert words.to_list() == ["b", None, "a"]


@pytest.mark.parametrize(
    "rows",
    [[], [(1, None)], [(None, None)] * 2, [(1, 1), (1, 1), (2, 1), (2, None), (1, 1), (2, None)]],
    ids=["none", "one", "nulls", "several that come back"],
)
def test_distinct_rows_are_those_of_a_hash_of_all(rows: list[tuple[int | None, ...]]) -> None:
    frame = pl.DataFrame(rows, schema={"a": pl.Int64(), "b": pl.Int64()}, orient="row")
    assert distinct(frame).rows() == frame.unique(maintain_order=True).rows()


def test_the_maximum_of_no_values_is_0() -> None:
    assert greatest(pl.Series([], dtype=pl.Int64)) == 0
    assert greatest(pl.Series([3, 9, None])) == 9


@pytest.mark.parametrize("keys", [[(1, 5)], [(1, 5), (2, 5)], []])
def test_the_number_of_a_row_is_where_its_key_stands(keys: list[tuple[int, int]]) -> None:
    schema = {"a": pl.Int64, "b": pl.UInt32}
    rows = pl.DataFrame([(1, 5), (2, 5), (None, 5), (1, 6)], schema, orient="row")
    found = number_in(pl.DataFrame(keys, schema, orient="row"), rows.with_columns(c=0))
    expected = [keys.index(row) if row in keys else None for row in rows.rows()]
    assert found.to_list() == expected
    assert found.dtype == pl.UInt32


@pytest.mark.parametrize(
    "kept",
    [
        [True] * 200,
        [False] * 200,
        [False, True, True, False, True] * 40,
        [False] * 50 + [True] * 100 + [False] * 49 + [True],
    ],
    ids=["all", "none", "many stretches", "two stretches"],
)
def test_the_rows_that_are_kept_are_those_of_a_filter(kept: list[bool]) -> None:
    rows = pl.DataFrame({"a": range(200)})
    assert filter_runs(rows, pl.Series(kept)).rows() == rows.filter(pl.Series(kept)).rows()


def test_a_few_stretches_are_not_copied_and_many_are() -> None:
    rows = pl.DataFrame({"a": range(4 * MOST_STRETCHES)})
    in_three = pl.Series([row not in (7, 90) for row in range(len(rows))])
    every_other = pl.Series([row % 2 == 0 for row in range(len(rows))])
    assert filter_runs(rows, in_three).n_chunks() == 3
    assert filter_runs(rows, every_other).n_chunks() == 1


VALUES = st.lists(st.integers(0, 10**13), min_size=1, max_size=30)


def of(values: list[int], expression: pl.Expr) -> object:
    return pl.DataFrame({"ns": values}).select(expression.alias("found")).item()


@given(VALUES)
def test_statistics_are_exact_values_rounded_half_to_even(values: list[int]) -> None:
    ns = pl.col("ns")
    assert of(values, p95_ns(ns)) == whole(percentile(values, 95))
    assert of(values, median_ns(ns)) == pytest.approx(whole(percentile(values, 50)), rel=1e-15)
    assert of(values, whole_ns(ns.mean())) == pytest.approx(whole(mean(values)), rel=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 21, 30])
def test_a_percentile_of_62_bits_does_not_overflow(count: int) -> None:
    values = [2**62 - 2**57 * (n % 9) for n in range(count)]
    assert of(values, p95_ns(pl.col("ns"))) == whole(percentile(values, 95))


def test_halves_are_rounded_to_even_and_what_has_no_value_is_null() -> None:
    ns = pl.col("ns")
    assert of([1, 2], median_ns(ns)) == of([2, 3], median_ns(ns)) == 2
    assert of([5], std_ns(ns)) is None
    assert of([2, 4, 4, 4, 5, 5, 7, 9], std_ns(ns)) == 2  # sqrt(32 / 7) = 2.14
    assert of([0], percent(ns, ns)) is None
    assert of([4], percent(ns - 1, ns)) == 75


def test_the_spread_names_its_six_columns() -> None:
    frame = pl.DataFrame({"ns": [1, 2, 3]}).select(spread(pl.col("ns")))
    assert frame.row(0, named=True) == {
        "mean_ns": 2,
        "median_ns": 2,
        "min_ns": 1,
        "max_ns": 3,
        "std_ns": 1,
        "p95_ns": whole(Fraction(29, 10)),
    }


@pytest.mark.parametrize("at_once", [1, 2])
def test_results_come_in_order_and_each_piece_is_counted(at_once: int) -> None:
    counted: list[None] = []
    pieces = [partial(int, at) for at in range(20)]
    found = side_by_side(pieces, lambda: counted.append(None), at_once=at_once)
    assert found == list(range(20))
    assert len(counted) == 20


class Doubled:
    """Numbers and their doubles, which take a while."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    @once_for_each
    def of(self, number: int, wait_s: float) -> int:
        self.asked.append(number)
        time.sleep(wait_s)
        return 2 * number


def test_of_threads_that_ask_for_the_same_one_computes_it_and_the_others_wait() -> None:
    doubled = Doubled()
    pieces = [partial(doubled.of, at % 3, 0.01) for at in range(12)]
    assert side_by_side(pieces, at_once=4) == [0, 2, 4] * 4
    assert sorted(doubled.asked) == [0, 1, 2]


@pytest.mark.parametrize("at_once", [1, 2])
def test_after_a_failure_what_has_not_begun_does_not_begin(at_once: int) -> None:
    ran: list[float] = []

    def fail() -> None:
        raise ZeroDivisionError

    def work() -> None:
        time.sleep(0.01)
        ran.append(1)

    with pytest.raises(ZeroDivisionError):
        side_by_side([fail, *[work] * 1000], at_once=at_once)
    assert len(ran) < 1000
