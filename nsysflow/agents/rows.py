"""`table`: some rows of a table, filtered and sorted, a page at a time."""

import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import polars as pl
from pydantic import ConfigDict

from nsysflow.agents.folder import WIDTH, Answer, Reports, plain_text
from nsysflow.analysis.tables.index import ABOUT, declaration
from nsysflow.base.errors import SelectionError, UnknownName, near_or_all
from nsysflow.base.units import number
from nsysflow.report.document import plain
from nsysflow.report.one_table import columns_that_fit, columns_with_values, readable_block
from nsysflow.report.text import set_block

Op = Literal["=", "!=", "<", "<=", ">", ">=", "contains"]

MOST_ROWS: Final = 500
"""The most rows that come at once."""

_ROW: Final = "row in the table"
_TEXTS: Final = (pl.String, pl.Enum, pl.Categorical)

_COMPARED: Final[Mapping[str, Callable[[pl.Expr, Any], pl.Expr]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OF_NULL: Final[Mapping[str, Callable[[pl.Expr], pl.Expr]]] = {
    "=": pl.Expr.is_null,
    "!=": pl.Expr.is_not_null,
}


@dataclass(frozen=True, kw_only=True)
class Condition:
    """What a row must have: `column` compared with `value`. null is what was not measured."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    column: str
    op: Op
    value: str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class Query:
    """Which rows and columns of a table.

    Attributes:
        name: of the table.
        columns: which ones; none for those that matter most.
        where: what all rows have.
        sort: the column to sort by; None for the order in which people read the table.
        descending: whether the largest come first.
        offset: how many rows are skipped.
        limit: the most rows to give.
    """

    name: str
    columns: tuple[str, ...] = ()
    where: tuple[Condition, ...] = ()
    sort: str | None = None
    descending: bool = True
    offset: int = 0
    limit: int = 20


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A page of a table.

    Attributes:
        table: its name.
        columns: of these rows.
        rows: a list of values per row, in the order of `columns`; times are ns.
        total: how many rows the filter leaves.
        offset: how many of them come before these.
        next_offset: where the next page begins; null on the last one.
    """

    table: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    total: int
    offset: int
    next_offset: int | None


def table(reports: Reports, typed: Sequence[str], query: Query) -> Answer[Rows]:
    """A page of a table of a report.

    Raises:
        UnknownName: there is no such table or column.
        SelectionError: a value cannot be compared with its column.
    """
    require_known(query)
    return page_of(reports.open(typed).table(query.name), query)


def require_known(query: Query) -> None:
    """Check the names of table and columns.

    Raises:
        UnknownName: there is no such table or column.
    """
    if query.name not in ABOUT:
        advice = near_or_all(query.name, ABOUT, where="nsysflow explain")
        raise UnknownName(f"no table {query.name!r}", advice)
    known = [*declaration(query.name).schema]
    sort = [] if query.sort is None else [query.sort]
    for column in (*query.columns, *(condition.column for condition in query.where), *sort):
        if column not in known:
            advice = near_or_all(column, known, where=f"nsysflow explain {query.name}")
            raise UnknownName(f"{query.name} has no column {column!r}", advice)


def page_of(whole: pl.DataFrame, query: Query) -> Answer[Rows]:
    """A page of a table.

    Raises:
        SelectionError: a value cannot be compared with its column.
    """
    order = _order(whole, query)
    page = whole[order[query.offset : query.offset + query.limit]]
    shown = [*(query.columns or declaration(query.name).shown.split() or page.columns)]
    end = query.offset + len(page)
    rows = Rows(
        table=query.name,
        columns=tuple(shown),
        rows=tuple(plain(page.select(shown)).rows()),
        total=len(order),
        offset=query.offset,
        next_offset=end if end < len(order) else None,
    )
    return Answer(text="\n".join(_lines(page, query, rows)), data=rows)


def _order(whole: pl.DataFrame, query: Query) -> pl.Series:
    """The numbers of the rows that the filter leaves, in the order that is asked for."""
    by = query.sort or declaration(query.name).ranked_by
    rows = whole.lazy().with_row_index(_ROW)
    if query.where:
        rows = rows.filter(*(_holds(whole, condition) for condition in query.where))
    if by is not None:
        descending = query.descending or query.sort is None
        rows = rows.sort(by, descending=descending, maintain_order=True, nulls_last=True)
    return rows.select(_ROW).collect()[_ROW]


def _holds(whole: pl.DataFrame, condition: Condition) -> pl.Expr:
    """Whether a row fulfils a condition.

    Raises:
        SelectionError: column, comparison and value do not go together.
    """
    dtype = whole.schema[condition.column]
    column, value = pl.col(condition.column), condition.value
    if value is None and condition.op in _OF_NULL:
        return _OF_NULL[condition.op](column)
    if dtype in _TEXTS and isinstance(value, str):
        text = column.cast(pl.String)
        if condition.op == "contains":
            return text.str.contains(value, literal=True)
        return _COMPARED[condition.op](text, value)
    alike = isinstance(value, bool) if dtype == pl.Boolean else type(value) in (int, float)
    if dtype not in _TEXTS and alike and condition.op in _COMPARED:
        return _COMPARED[condition.op](column, value)
    raise _cannot_compare(condition, is_text=dtype in _TEXTS)


def _cannot_compare(condition: Condition, *, is_text: bool) -> SelectionError:
    name, value = condition.column, json.dumps(condition.value)
    if condition.op == "contains":
        advice = "Compare numbers with =, !=, <, <=, > or >="
    else:
        advice = f"Give a text, or null, for {name}" if is_text else f"Give a number for {name}"
    held = "text" if is_text else "numbers"
    return SelectionError(f"{name} holds {held}: it is never {condition.op} {value}", advice)


def _lines(page: pl.DataFrame, query: Query, rows: Rows) -> Iterator[str]:
    """The rows as people read them, and which they are."""
    if not rows.total:
        why = "no row is left by the filter" if query.where else declaration(query.name).filled_by
        yield f"{query.name} has no rows: {why}"
        return
    if page.is_empty():
        yield f"{query.name} has {number(rows.total)} rows; offset {query.offset} is too large"
        return
    columns = query.columns or columns_that_fit(page, rows.columns, WIDTH - 2)
    block = readable_block(page.select(columns), f"{query.name}: {ABOUT[query.name]}")
    yield plain_text(set_block(block, WIDTH))
    last = rows.offset + len(page)
    more = f"; more from offset {last}" if rows.next_offset is not None else ""
    yield f"rows {number(rows.offset + 1)} to {number(last)} of {number(rows.total)}{more}"
    hidden = [name for name in columns_with_values(page) if name not in columns]
    if hidden and not query.columns:
        yield f"other columns: {', '.join(hidden)}"
