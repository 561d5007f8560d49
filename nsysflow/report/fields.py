"""Blocks from rows: each column stands beside the function that makes its cells."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import polars as pl

from nsysflow.analysis.findings.finding import line
from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.base.units import duration, number, share
from nsysflow.report.layout import Block, Column, words
from nsysflow.report.results import Results, gpu_name
from nsysflow.report.source_lines import line_at

T = TypeVar("T")

Row = Mapping[str, Any]
"""A row of a table."""

Field = tuple[Column, Callable[[T], str]]
"""A column, and the cell that a row has in it."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much of a table a block shows.

    Attributes:
        rows: at most this many rows.
        at_least_ns: only gaps of this length and longer.
    """

    rows: int
    at_least_ns: int = 0


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


def phase_field() -> Field[Row]:
    """The column `phase`, spelled out where no range was open."""
    return words("phase"), lambda row: row["phase"] or OUTSIDE


def line_field() -> Field[Row]:
    """The source line of idle time."""
    return Column(head="line"), lambda row: line_at(
        row["cause"], row["culprit"] or "", line(row["source"] or "", row["via"] or "")
    )


def gpu_field(results: Results, *, head: str = "GPU") -> Field[Row]:
    """The GPU that a row is of; with its report where there are several reports."""
    several = len(results.reports) > 1
    return Column(head=head), lambda row: gpu_name(row["report"], row["device"], several=several)


def gpu_fields(results: Results, table: pl.DataFrame) -> tuple[Field[Row], ...]:
    """The same, only where the rows are of several GPUs."""
    several = table.select("report", "device").n_unique() > 1
    return (gpu_field(results),) if several else ()


def gpus_together(results: Results) -> str:
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
