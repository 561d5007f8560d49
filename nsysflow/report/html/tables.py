"""The tables of the page: what they and their columns mean. Their rows are in report.json."""

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.declared.tables import TABLES, Table
from nsysflow.analysis.tables.columns import meaning
from nsysflow.analysis.tables.schema import SCHEMAS
from nsysflow.report.document import plain
from nsysflow.report.one_table import head, unit_of
from nsysflow.report.results import Results

MOST_ROWS: Final = 20_000
"""How many rows of a table are on the page."""

MOST_GAPS: Final = 1_000
"""How many gaps are in the page's table of gaps: the longest."""

NO_LIST: Final = "step_parts"
"""It is no list of rows in report.json, but series for comparisons."""


@dataclass(frozen=True, kw_only=True)
class ColumnShown:
    """A column of a table.

    Attributes:
        name: as the CSV file has it.
        head: its heading.
        key: where its cell is in a row of report.json, e.g. `causes/host`.
        meaning: what it means.
        kind: whether cells are `text`, `number`, `bool` or `list`.
        unit: what its numbers count, as units.js spells it; empty for plain ones.
    """

    name: str
    head: str
    key: str
    meaning: str
    kind: str
    unit: str = ""


@dataclass(frozen=True, kw_only=True)
class TableShown:
    """A table.

    Attributes:
        name: as `--table` spells it.
        about: what it holds, a clause.
        rows_are: what a row is, in sentences.
        pointer: where its rows are in report.json, e.g. `/kernels`; empty where `rows` holds them.
        columns: all of them.
        shown: the names of those that people act on, most important first; empty for all.
        ranked_by: the column that people read it by, largest first; None for the order of the rows.
        rows: the rows, where they are not in report.json.
        total: how many rows there are; more than are on the page where it was cut.
        filled_by: what to do so that it has rows.
    """

    name: str
    about: str
    rows_are: str
    pointer: str
    columns: tuple[ColumnShown, ...]
    shown: tuple[str, ...]
    ranked_by: str | None
    rows: list[dict[str, Any]]
    total: int
    filled_by: str


def tables_shown(results: Results) -> list[TableShown]:
    """All tables of a run, those without rows too."""
    return [_table(results, each) for each in TABLES.values() if each.name != NO_LIST]


def _table(results: Results, table: Table) -> TableShown:
    """A table, with its rows where report.json lacks them."""
    if table.in_slices:
        rows, total = results.longest_gaps(MOST_GAPS, 0), results.count_gaps(0)
    else:
        rows = results.table(table.name)
        total = len(rows)
    return TableShown(
        name=table.name,
        about=table.about,
        rows_are=" ".join(SCHEMAS[table.name].about.split()),
        pointer=f"/{_POINTERS.get(table.name, table.json_key)}" if table.json_key else "",
        columns=tuple(_column(table.name, name, dtype) for name, dtype in rows.schema.items()),
        shown=tuple(table.shown.split()),
        ranked_by=table.ranked_by,
        rows=[] if table.json_key else plain(rows.head(MOST_ROWS)).to_dicts(),
        total=total,
        filled_by=table.filled_by,
    )


_POINTERS: Final = {"steps": "steps/rows"}
"""Where rows are not right below the table's key."""


def _column(table: str, name: str, dtype: pl.DataType) -> ColumnShown:
    return ColumnShown(
        name=name,
        head=head(name),
        key=_key(table, name),
        meaning=meaning(table, name),
        kind=_kind(dtype),
        unit=unit_of(name) or ("number" if dtype.is_float() else ""),
    )


def _key(table: str, column: str) -> str:
    """Where report.json has a cell: the causes of a GPU have a key of their own."""
    cause = column.removesuffix("_ns")
    return f"causes/{cause}" if table == "accounting" and cause in CAUSES else column


def _kind(dtype: pl.DataType) -> str:
    if dtype == pl.Boolean:
        return "bool"
    if isinstance(dtype, pl.List):
        return "list"
    return "number" if dtype.is_numeric() else "text"
