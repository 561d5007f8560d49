"""What the page shows beside the timeline: `about.page`."""

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

import nsysflow
from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.declared.tables import TABLES, Table
from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.tables.columns import meaning
from nsysflow.report.document import plain
from nsysflow.report.findings import saving_of
from nsysflow.report.flamegraph.boxes import Box, boxes
from nsysflow.report.flamegraph.draw import own_files
from nsysflow.report.page import Page, compose
from nsysflow.report.results import Results
from nsysflow.report.verdict.verdict import Verdict

MOST_ROWS: Final = 20_000
"""So many rows of a table are on the page."""

MOST_GAPS: Final = 1_000
"""So many gaps are in the page's table of gaps, the longest."""


@dataclass(frozen=True, kw_only=True)
class Headline:
    """A line of the verdict.

    Attributes:
        text: what holds the GPUs back, or why that cannot be said.
        advice: what to do next; may be empty.
        valid: whether it is a verdict.
    """

    text: str
    advice: str
    valid: bool


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
        place: the report's number, and the start and end on the page's axis of where to look; None
            where the timeline has no place for it.
    """

    number: int
    saving: str
    title: str
    change: tuple[str, ...]
    evidence: tuple[str, ...]
    table: str
    place: tuple[int, float, float] | None


@dataclass(frozen=True, kw_only=True)
class ColumnShown:
    """A column of a table.

    Attributes:
        name: as the CSV file has it.
        key: where its cell is in a row of report.json, e.g. `causes/host`.
        meaning: what it means.
        kind: whether cells are `text`, `number`, `bool` or `list`. The name's end is the unit:
            `_ns`, `_pct`, `_bytes`.
    """

    name: str
    key: str
    meaning: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class TableShown:
    """A table.

    Attributes:
        name: as `--table` spells it.
        about: what a row is.
        pointer: where its rows are in report.json, e.g. `/kernels`; empty where `rows` holds them.
        columns: all of them.
        shown: the names of those that people act on, most important first; empty for all.
        rows: the rows, where they are not in report.json.
        total: how many rows there are; more than are on the page where it was cut.
        filled_by: what to do so that it has rows.
    """

    name: str
    about: str
    pointer: str
    columns: tuple[ColumnShown, ...]
    shown: tuple[str, ...]
    rows: list[dict[str, Any]]
    total: int
    filled_by: str


@dataclass(frozen=True, kw_only=True)
class Flame:
    """A box of the idle flame graph.

    Attributes:
        name: of the phase, cause or function.
        file: of the function; may be empty.
        line: the line with most of its idle time.
        kind: `report`, `phase`, `cause`, `own`, `library` or `unknown`.
        ns: its idle time, with that of its children.
        children: the boxes below it, the widest first.
    """

    name: str
    file: str
    line: int | None
    kind: str
    ns: int
    children: "tuple[Flame, ...]"


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What the page shows beside the timeline, in its order.

    Attributes:
        version: of nsysflow.
        reports: the reports' names.
        facts: what they ran on, with which versions, and when.
        selection: the options that narrow the window; empty without any.
        steps: how many steps there are and how long they take; empty without.
        headlines: the verdict.
        remarks: what to keep in mind about it.
        caption: what savings are of.
        findings: what to change, the largest saving first.
        sentences: what else is worth a line.
        tables: the tables with rows, in the declared order.
        without_rows: the names of the others, and what fills them.
        flame: the idle flame graph of the judged steps; None where no stacks were sampled.
        flame_steps: how many steps its times are of.
        causes: each cause's label and meaning.
        notes: what the reader should know about the reports.
        again: the run as it is typed after a command, to see more of it.
    """

    version: str
    reports: str
    facts: tuple[str, ...]
    selection: str
    steps: str
    headlines: tuple[Headline, ...]
    remarks: tuple[str, ...]
    caption: str
    findings: tuple[FindingShown, ...]
    sentences: tuple[str, ...]
    tables: tuple[TableShown, ...]
    without_rows: dict[str, str]
    flame: Flame | None
    flame_steps: int
    causes: dict[str, tuple[str, str]]
    notes: tuple[str, ...]
    again: str


def contents(results: Results) -> Contents:
    """What the page shows of a run."""
    page = compose(results, "full", top=None, at_least_ns=0)
    tables = [_table(results, table) for table in TABLES.values()]
    stacks = results.judged.idle_stacks()
    return Contents(
        version=nsysflow.__version__,
        reports=page.reports,
        facts=tuple(filter(None, [page.gpus, *page.recorded])),
        selection=page.selection,
        steps=page.steps,
        headlines=_headlines(page),
        remarks=page.remarks,
        caption=page.suggestions.caption,
        findings=tuple(
            _finding(number, each) for number, each in enumerate(results.found.valued, start=1)
        ),
        sentences=page.sentences,
        tables=tuple(table for table in tables if table.total),
        without_rows={table.name: table.filled_by for table in tables if not table.total},
        flame=None if stacks.is_empty() else _flame(boxes(stacks, own_files(results))),
        flame_steps=results.judged.step_count,
        causes={cause.name: (cause.label, cause.meaning) for cause in CAUSES.values()},
        notes=page.notes,
        again=results.again,
    )


def _headlines(page: Page) -> tuple[Headline, ...]:
    return tuple(
        Headline(text=each.sentence, advice=each.advice, valid=isinstance(each, Verdict))
        for each in page.headlines
    )


def _finding(number: int, valued: Valued) -> FindingShown:
    found = valued.finding
    return FindingShown(
        number=number,
        saving=saving_of(valued),
        title=found.title,
        change=found.change,
        evidence=found.evidence,
        table=found.table,
        place=None,
    )


def _table(results: Results, table: Table) -> TableShown:
    """A table, with its rows where report.json lacks them."""
    if table.name == "gaps":
        rows, total = results.longest_gaps(MOST_GAPS, 0), results.count_gaps(0)
    else:
        rows = results.table(table.name)
        total = len(rows)
    return TableShown(
        name=table.name,
        about=table.about,
        pointer=f"/{_POINTERS.get(table.name, table.json_key)}" if table.json_key else "",
        columns=tuple(
            ColumnShown(
                name=name,
                key=_key(table.name, name),
                meaning=meaning(table.name, name),
                kind=_kind(dtype),
            )
            for name, dtype in rows.schema.items()
        ),
        shown=tuple(table.shown.split()),
        rows=[] if table.json_key else plain(rows.head(MOST_ROWS)).to_dicts(),
        total=total,
        filled_by=table.filled_by,
    )


_POINTERS: Final = {"steps": "steps/rows"}
"""Where rows are not right below the table's key."""


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


def _flame(box: Box) -> Flame:
    place = box.place
    return Flame(
        name=place.name,
        file=place.file,
        line=box.line,
        kind=place.kind,
        ns=box.ns,
        children=tuple(_flame(child) for child in box.widest_first),
    )
