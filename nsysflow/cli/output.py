"""What is printed of an analysis: the page, report.json, the gaps, or one table, of which rows and
columns are chosen.
"""

import sys
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Final

import click
import polars as pl
from rich.text import Text

from nsysflow.analysis.tables.index import declaration
from nsysflow.base.screen import Printout, console, line_width, stdout
from nsysflow.cli.options import Style
from nsysflow.report.one_table import columns_that_fit, columns_with_values, readable_block
from nsysflow.report.page import Length
from nsysflow.report.results import Results, sorted_by_rank
from nsysflow.report.text import page_lines, set_block, table_lines


def page_printout(results: Results, *, full: bool, top: int | None, at_least_ns: int) -> Printout:
    """The page, as wide as the terminal: one screen, or all of it."""
    length: Length = "full" if full else "page"
    lines = page_lines(results, width=line_width(), length=length, top=top, at_least_ns=at_least_ns)
    return Printout(lines=[*lines])


def show_json(results: Results) -> None:
    """The document that report.json holds."""
    from nsysflow.report.document import report_json

    with stdout() as out:
        out.write(report_json(results).encode())


def show_gaps(results: Results, *, at_least_ns: int) -> None:
    """The rows of gaps.csv."""
    from nsysflow.report.tables import write_gaps_csv

    with stdout() as out:
        write_gaps_csv(results, out, at_least_ns=at_least_ns)


_ROWS_OF_A_SCREEN: Final = 40


def table_printout(results: Results, name: str, style: Style, *, at_least_ns: int) -> Printout:
    """One table for people."""
    table = _rows(results, name, style, at_least_ns)
    if style.form == "md":
        lines = map(Text, table_lines(readable_block(_with_columns(table, style.columns), name)))
        return Printout(lines=lines, remarks=_why_empty(table, name, at_least_ns))
    if table.is_empty():
        return Printout(lines=(), remarks=_why_empty(table, name, at_least_ns))
    return _for_people(table, name, style)


def print_for_programs(results: Results, name: str, style: Style, *, at_least_ns: int) -> None:
    """Print one table as CSV or Parquet. As Parquet, `copies` and `comm` have a row for each copy
    and kernel.

    Raises:
        click.UsageError: Parquet would go to a terminal.
    """
    table = _rows(results, name, style, at_least_ns)
    for remark in _why_empty(table, name, at_least_ns):
        click.echo(remark, err=True)
    chosen = _with_columns(table, style.columns)
    if style.form == "parquet":
        _print_parquet(chosen)
        return
    from nsysflow.report.tables import write_csv

    with stdout() as out:
        write_csv(chosen, out)


def _rows(results: Results, name: str, style: Style, at_least_ns: int) -> pl.DataFrame:
    """The rows to print, in the order in which their reader wants them."""
    from nsysflow.report.tables import named_table

    declared = declaration(name)
    if style.form == "parquet" and declared.each is not None:
        table = results.table(declared.each)
    else:
        table = named_table(results, name, at_least_ns=at_least_ns)
    if style.form in ("table", "md"):
        table = sorted_by_rank(table, name)
    return table if style.top is None else table.head(style.top)


def _with_columns(table: pl.DataFrame, columns: Sequence[str] | None) -> pl.DataFrame:
    return table if columns is None else table.select(columns)


def _print_parquet(table: pl.DataFrame) -> None:
    if sys.stdout.isatty():
        msg = "--format parquet is binary: send it to a file, e.g. > table.parquet"
        raise click.UsageError(msg)
    from nsysflow.report.tables import write_parquet

    whole = BytesIO()
    write_parquet(table, whole)
    with stdout() as out:
        out.write(whole.getvalue())


def _for_people(table: pl.DataFrame, name: str, style: Style) -> Printout:
    shown = table
    if style.top is None and console().is_terminal:
        shown = table.head(_ROWS_OF_A_SCREEN)
    width = line_width()
    if style.columns is not None:
        columns = list(style.columns)
    elif style.wide:
        columns = table.columns
    else:
        columns = columns_that_fit(
            shown, declaration(name).shown.split() or table.columns, width - 2
        )
    block = readable_block(shown.select(columns), name)
    return Printout(
        lines=set_block(block, None if style.wide else width),
        remarks=tuple(_left_out(table, shown, columns, style)),
    )


def _left_out(
    table: pl.DataFrame, shown: pl.DataFrame, columns: Sequence[str], style: Style
) -> Iterator[str]:
    """Which columns and how many rows are not there, and how to get them."""
    if len(table) > len(shown):
        more = len(table) - len(shown)
        yield f"{more:,} more rows; --top {len(table)} shows all"
    hidden = [name for name in columns_with_values(table) if name not in columns]
    if hidden and style.columns is None:
        how = "--wide shows all columns, --columns A,B,C chooses"
        yield f"not shown: {', '.join(hidden)}; {how}"


def _why_empty(table: pl.DataFrame, name: str, at_least_ns: int) -> tuple[str, ...]:
    """Why a table has no rows; nothing where it has some."""
    if not table.is_empty():
        return ()
    short = at_least_ns and name == "gaps"
    why = "no gap is as long as --min-gap-us" if short else declaration(name).filled_by
    return (f"{name} has no rows: {why}",)
