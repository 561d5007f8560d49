"""The tables, findings and heat map of the page."""

from dataclasses import asdict, dataclass
from typing import Any, Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.tables.index import ABOUT, declarations
from nsysflow.analysis.tables.table import Table
from nsysflow.report.document import plain
from nsysflow.report.explain.finding import explain_findings
from nsysflow.report.explain.pages import WIDTH_MAX, Explained, Part
from nsysflow.report.findings import Suggestion, Suggestions
from nsysflow.report.html.columns import Blobs, packed
from nsysflow.report.html.timeline import Place, places_of
from nsysflow.report.layout import Block, without_empty_columns
from nsysflow.report.one_table import head, unit_of
from nsysflow.report.ranks import longer_pct, own_ns, rank_namer
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
    return [_table(results, each) for each in declarations(ABOUT) if each.name != NO_LIST]


def _table(results: Results, table: Table) -> TableShown:
    """A table, with its rows where report.json lacks them."""
    if table.in_slices:
        rows, total = results.longest_gaps(MOST_GAPS, 0), results.count_gaps(0)
    else:
        rows = results.table(table.name)
        total = len(rows)
    return TableShown(
        name=table.name,
        about=ABOUT[table.name],
        rows_are=table.schema.about,
        pointer=f"/{_POINTERS.get(table.name, table.json_key)}" if table.json_key else "",
        columns=tuple(_column(table, name, dtype) for name, dtype in rows.schema.items()),
        shown=tuple(table.shown.split()),
        ranked_by=table.ranked_by,
        rows=[] if table.json_key else plain(rows.head(MOST_ROWS)).to_dicts(),
        total=total,
        filled_by=table.filled_by,
    )


_POINTERS: Final = {"steps": "steps/rows"}
"""Where rows are not right below the table's key."""


def _column(table: Table, name: str, dtype: pl.DataType) -> ColumnShown:
    return ColumnShown(
        name=name,
        head=head(name),
        key=_key(table.name, name),
        meaning=table.schema.meanings[name],
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


@dataclass(frozen=True, kw_only=True)
class FindingShown:
    """A finding, in the order of `/findings` of report.json.

    Attributes:
        number: as `nsysflow explain` takes it.
        saving: `save 542 us (13 %)`.
        title: what happens and where.
        change: what to do, in the order in which to try it.
        evidence: the numbers that it rests on.
        table: the table that holds them.
        steps: `in 2 of 5 steps`; empty where nearly all have it.
        place: the report's number, and the start and end on the page's axis of where to look; None
            where the timeline has no place for it.
        explained: the parts of `nsysflow explain`, each with its `kind`.
    """

    number: int
    saving: str
    title: str
    change: tuple[str, ...]
    evidence: tuple[str, ...]
    table: str
    steps: str
    place: Place | None
    explained: tuple[dict[str, Any], ...]


def findings_shown(results: Results, found: Suggestions) -> tuple[FindingShown, ...]:
    """All findings of a run."""
    explained = explain_findings(results, WIDTH_MAX)
    rows = zip(found.rows, results.found.valued, places_of(results), strict=True)
    return tuple(
        _finding(suggestion, valued, place, explained[suggestion.number])
        for suggestion, valued, place in rows
    )


def _finding(
    suggestion: Suggestion, valued: Valued, place: Place | None, explained: Explained
) -> FindingShown:
    return FindingShown(
        number=suggestion.number,
        saving=suggestion.saving,
        title=suggestion.title,
        change=valued.finding.change,
        evidence=valued.finding.evidence,
        table=valued.finding.table,
        steps=suggestion.steps,
        place=place,
        explained=tuple(map(_part, explained.parts)),
    )


def _part(part: Part) -> dict[str, Any]:
    """A part of an explanation with the name of its kind."""
    shown = without_empty_columns(part) if isinstance(part, Block) else part
    return {"kind": type(part).__name__.lower(), **asdict(shown)}


_CELL = ["rank", "step"]


def heat_shown(results: Results, blobs: Blobs) -> dict[str, Any] | None:
    """The names of the ranks, the numbers of the steps, and for each rank its steps: `duration`,
    `own`, `late` and `cost` in ns, and `longer` in tenths of a percent. 0 where a rank lacks a
    step. None of few ranks. Adds the columns to `blobs`.
    """
    table = results.table("rank_steps")
    if not results.many or table.is_empty():
        return None
    ranks = table.select("rank", "report", "device").unique("rank", keep="first").sort("rank")
    steps = table.select("step").unique().sort("step")
    values = table.select(
        *_CELL,
        pl.col("duration_ns").alias("duration"),
        own_ns().alias("own"),
        pl.col("late_ns").alias("late"),
        pl.col("cost_ns").alias("cost"),
        (10 * longer_pct()).round().clip(0).cast(pl.Int64).alias("longer"),
    )
    cells = ranks.select("rank").join(steps, how="cross").join(values, on=_CELL, how="left")
    cells = cells.sort(_CELL).drop(_CELL).fill_null(0)
    name = rank_namer(results)
    columns = {column.name: packed(column) for column in cells}
    return {
        "ranks": [name(report, device) for _, report, device in ranks.rows()],
        "steps": steps["step"].to_list(),
        "columns": {each: blobs.column(of) for each, of in columns.items() if of is not None},
    }
