from typing import Any

import polars as pl
import pytest

from nsysflow.agents.rows import Condition, Op, Query, page_of, require_known
from nsysflow.base.errors import SelectionError, UnknownName
from tests.analyses import SCHEMAS


def gaps(**columns: pl.Series) -> pl.DataFrame:
    """A table of gaps in which only these columns have values."""
    length = len(next(iter(columns.values())))
    nulls = {name: pl.repeat(None, length, dtype=pl.Null, eager=True) for name in SCHEMAS["gaps"]}
    frame = pl.DataFrame(nulls | columns)
    return frame.cast(dict(SCHEMAS["gaps"].items()))


SMALL = gaps(
    duration_ns=pl.Series([5, 9, 7, 9]),
    gap=pl.Series([0, 1, 2, 3]),
    cause=pl.Series(["sync", "host", "sync", "launch"]),
    source=pl.Series(["train.py:1 in f", None, "other.py:2 in g", "train.py:3 in (h.*)"]),
)


def ids(query: Query, table: pl.DataFrame = SMALL) -> list[int]:
    """The gaps that are found, by number, in their order."""
    found = page_of(table, query).data
    return [row[found.columns.index("gap")] for row in found.rows]


def of_gaps(**wanted: Any) -> Query:
    return Query(name="gaps", columns=("gap", "duration_ns"), **wanted)


def where(column: str, op: Op, value: Any) -> Query:
    condition = Condition(column=column, op=op, value=value)
    return of_gaps(where=(condition,), sort="gap", descending=False)


@pytest.mark.parametrize(
    ("query", "order"),
    [
        (of_gaps(), [1, 3, 2, 0]),  # the largest first, as people read the table
        (of_gaps(sort="gap"), [3, 2, 1, 0]),
        (of_gaps(sort="gap", descending=False), [0, 1, 2, 3]),
        # what was not measured comes last either way
        (of_gaps(sort="source"), [3, 0, 2, 1]),
        (of_gaps(sort="source", descending=False), [2, 0, 3, 1]),
    ],
)
def test_a_column_sorts_either_way(query: Query, order: list[int]) -> None:
    assert ids(query) == order


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        (("cause", "=", "sync"), [0, 2]),
        (("cause", "!=", "sync"), [1, 3]),
        (("duration_ns", ">", 7), [1, 3]),
        (("duration_ns", ">=", 7), [1, 2, 3]),
        (("duration_ns", "<", 7.5), [0, 2]),
        (("duration_ns", "<=", 5), [0]),
        (("source", "contains", "train.py"), [0, 3]),
        (("source", "contains", "(h.*)"), [3]),
        (("source", "=", None), [1]),
        (("source", "!=", None), [0, 2, 3]),
    ],
)
def test_a_condition_leaves_the_rows_that_fulfil_it(
    condition: tuple[str, Op, object], left: list[int]
) -> None:
    assert ids(where(*condition)) == left


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (("duration_ns", "=", "long"), "Give a number for duration_ns"),
        (("duration_ns", ">", True), "Give a number for duration_ns"),
        (("duration_ns", "contains", 5), "Compare numbers with ="),
        (("cause", "=", 3), "Give a text, or null, for cause"),
        (("source", "<", None), "Give a text, or null, for source"),
    ],
)
def test_what_cannot_be_compared_is_refused(condition: tuple[str, Op, object], said: str) -> None:
    with pytest.raises(SelectionError) as refused:
        ids(where(*condition))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (Query(name="gapz"), "Did you mean gaps?"),
        (Query(name="gaps", columns=("duration",)), "Did you mean duration_ns?"),
        (Query(name="gaps", sort="caus"), "Did you mean cause?"),
        (where("sourc", "=", "x"), "Did you mean source?"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(query: Query, said: str) -> None:
    with pytest.raises(UnknownName) as refused:
        require_known(query)
    assert said in str(refused.value)


def test_pages_hold_every_row_once_and_say_where_the_next_one_begins() -> None:
    first, rest = page_of(SMALL, of_gaps(limit=3)), page_of(SMALL, of_gaps(limit=3, offset=3))
    assert (first.data.next_offset, rest.data.next_offset) == (3, None)
    assert (*first.data.rows, *rest.data.rows) == page_of(SMALL, of_gaps()).data.rows
    assert "rows 1 to 3 of 4; more from offset 3" in first.text
    assert "rows 4 to 4 of 4\n" in rest.text + "\n"
