"""Blocks from rows: each column stands beside the function that makes its cells."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.findings.finding import line, without_function
from nsysflow.base.names import OUTSIDE
from nsysflow.base.units import duration, number, share
from nsysflow.report.layout import Block, Column, figure, without_empty_columns, words
from nsysflow.report.results import RunTables, gpu_name

T = TypeVar("T")

Row = Mapping[str, Any]
"""A row of a table."""

Field = tuple[Column, Callable[[T], str]]
"""A column, and the cell that a row has in it."""

Fields = tuple[Field[Row], ...]

FieldsOfRun = Callable[[RunTables, pl.DataFrame], Fields]
"""The columns that depend on the run or on the rows that a block may show; none where they would
say nothing."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much of a table a block shows.

    Attributes:
        rows: at most this many rows.
        at_least_ns: only gaps of this length and longer.
    """

    rows: int
    at_least_ns: int = 0


@dataclass(frozen=True)
class Rows:
    """The rows that a block may show, best first, and how many rows it stands for."""

    frame: pl.DataFrame
    count: int


@dataclass(frozen=True, kw_only=True)
class BlockDeclaration:
    """The block of a table, where columns and a few words say all of it.

    Attributes:
        table: the table's name.
        title: its heading.
        fields: its columns, from left to right.
        caption: how to read it; a function where the run decides.
        per_step: whether the caption says that figures are per step.
        sort: the columns to sort by, largest first; empty for the table's own order.
        rows: chooses and orders the rows; None takes all rows of the table.
        more: makes the lines below it.
        hides_empty: whether columns without any value are left out.
    """

    table: str
    title: str
    fields: tuple[Field[Row] | FieldsOfRun, ...]
    caption: str | Callable[[RunTables], str] = ""
    per_step: bool = False
    sort: tuple[str, ...] = ()
    rows: Callable[[RunTables, Limits], Rows] | None = None
    more: Callable[[RunTables], tuple[str, ...]] | None = None
    hides_empty: bool = False


def declared_block(declared: BlockDeclaration, results: RunTables, limits: Limits) -> Block:
    """The block that a declaration describes."""
    rows = _rows_of(declared, results, limits)
    caption = declared.caption if isinstance(declared.caption, str) else declared.caption(results)
    fields = [
        field
        for each in declared.fields
        for field in (each(results, rows.frame) if callable(each) else (each,))
    ]
    block = make_block(
        declared.title,
        named_rows(rows.frame, limits),
        fields,
        caption=caption + (results.per_step if declared.per_step else ""),
        more=() if declared.more is None else declared.more(results),
        rest=more_rows(rows.count - min(len(rows.frame), limits.rows), declared.table),
    )
    return without_empty_columns(block) if declared.hides_empty else block


def _rows_of(declared: BlockDeclaration, results: RunTables, limits: Limits) -> Rows:
    if declared.rows is not None:
        return declared.rows(results, limits)
    table = results.table(declared.table)
    if declared.sort:
        table = table.sort(declared.sort, descending=True, maintain_order=True)
    return Rows(table, len(table))


def make_block(
    title: str,
    rows: Iterable[T],
    fields: Sequence[Field[T]],
    *,
    caption: str = "",
    more: tuple[str, ...] = (),
    rest: str = "",
) -> Block:
    """A block with a cell for each row and field."""
    return Block(
        title=title,
        caption=caption,
        columns=tuple(column for column, _ in fields),
        rows=tuple(tuple(cell(row) for _, cell in fields) for row in rows),
        more=more,
        rest=rest,
    )


def named_rows(table: pl.DataFrame, limits: Limits) -> Iterable[Row]:
    """The first rows of a table."""
    return table.head(limits.rows).iter_rows(named=True)


def value(column: str, shown: Callable[[Any], str] = str) -> Callable[[Row], str]:
    """The cell of a column, as `shown`; empty for null."""
    return lambda row: "" if row[column] is None else shown(row[column])


def measure(
    head: str, column: str, shown: Callable[[Any], str] = number, *, spare: bool = False
) -> Field[Row]:
    """A number of the table, as `shown`."""
    return figure(head, spare=spare), value(column, shown)


def text(head: str, column: str = "", *, fixed: bool = False, spare: bool = False) -> Field[Row]:
    """Words of the table's column `column`, or of the one called as the heading; never shortened
    if `fixed`."""
    shape = Column(head=head, spare=spare) if fixed else words(head, spare=spare)
    return shape, value(column or head)


def measure_per_step(head: str, column: str, shown: Callable[[int], str] = duration) -> FieldsOfRun:
    """A sum of the table divided by the number of judged steps."""

    def fields(results: RunTables, _: pl.DataFrame) -> Fields:
        steps = results.step_count
        return (measure(head, column, lambda total: shown(round(total / steps))),)

    return fields


def count_per_step(head: str, column: str) -> FieldsOfRun:
    """A count of the table divided by the number of judged steps: `0.5`."""

    def fields(results: RunTables, _: pl.DataFrame) -> Fields:
        steps = results.step_count
        return (measure(head, column, lambda count: mean_count(count, steps)),)

    return fields


def where_known(column: str, fields: FieldsOfRun) -> FieldsOfRun:
    """The fields, if some row has a value in `column`."""

    def known(results: RunTables, table: pl.DataFrame) -> Fields:
        return fields(results, table) if table[column].null_count() < len(table) else ()

    return known


def cause_field() -> Field[Row]:
    """The cause of idle time."""
    return Column(head="cause"), lambda row: CAUSES[row["cause"]].label


def phase_field() -> Field[Row]:
    """The column `phase`, spelled out where no range was open."""
    return words("phase"), lambda row: row["phase"] or OUTSIDE


def line_field() -> Field[Row]:
    """The source line of idle time."""
    return Column(head="line"), lambda row: line_at(
        row["cause"], row["culprit"] or "", line(row["source"] or "", row["via"] or "")
    )


def gpu_field(results: RunTables, *, head: str = "GPU") -> Field[Row]:
    """The GPU that a row is of; with its report where there are several reports."""
    several = len(results.reports) > 1
    return Column(head=head), lambda row: gpu_name(row["report"], row["device"], several=several)


def gpu_fields(results: RunTables, table: pl.DataFrame) -> tuple[Field[Row], ...]:
    """The same, only where the rows are of several GPUs."""
    several = table[["report", "device"]].n_unique() > 1
    return (gpu_field(results),) if several else ()


def gpus_together(results: RunTables) -> str:
    """What a caption says where the rows are sums over several GPUs."""
    count = results.table("accounting").height
    return f"; {number(count)} GPUs together" if count > 1 else ""


def more_rows(count: int, table: str) -> str:
    """How many rows a block leaves out and how to see them; empty where it is complete."""
    return f"{number(count)} more: --table {table}" if count > 0 else ""


def mean_count(count: int, steps: int) -> str:
    """How many there are per step: `1,287`, `0.5`."""
    mean = count / steps
    if mean >= 10 or mean == round(mean):
        return number(round(mean))
    return f"{mean:.1f}" if mean >= 0.05 else "<0.1"


def time_and_share(ns: int, whole_ns: int) -> str:
    """A time and its share of the whole: `105 ms 34 %`."""
    return f"{duration(ns)} {share(ns, whole_ns)}" if ns else "0"


def line_at(cause: str, culprit: str, line: str) -> str:
    """The line of idle time. The line known of host code is that of the launch after it, so the
    code is before that line."""
    before = line and cause == "host" and not culprit
    return f"before {without_function(line)}" if before else line
