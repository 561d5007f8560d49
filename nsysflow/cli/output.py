"""Print to stdout: the page, report.json, the gaps, or one table, of which rows and columns are
chosen.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from errno import EPIPE
from io import BytesIO
from os import strerror
from typing import BinaryIO, Final, Literal

import click
import polars as pl
from rich.console import Console
from rich.text import Text

from nsysflow.analysis.tables.index import declaration
from nsysflow.base.errors import OutputError, near_or_all
from nsysflow.base.names import uncontrolled
from nsysflow.base.screen import console, line_width
from nsysflow.report.one_table import columns_that_fit, columns_with_values, readable_block
from nsysflow.report.page import Length
from nsysflow.report.results import Results, sorted_by_rank
from nsysflow.report.text import page_lines, set_block, table_lines, wrapped


@dataclass(frozen=True, kw_only=True)
class Printout:
    """What a command prints.

    Attributes:
        lines: to stdout.
        remarks: on them, to stderr, when they are printed.
    """

    lines: Iterable[Text]
    remarks: tuple[str, ...] = ()

    def show(self) -> None:
        """Print it."""
        print_lines(console(), self.lines)
        for remark in self.remarks:
            click.echo("\n  ".join(wrapped(remark, line_width() - 2)), err=True)


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


@contextmanager
def stdout() -> Iterator[BinaryIO]:
    """Standard output, here for bytes.

    Raises:
        BrokenPipeError: the reader left.
        OutputError: it cannot be written otherwise, e.g. to a file on a full disk.
    """
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except OSError as error:
        # polars names the error only in its text
        if error.errno == EPIPE or f"(os error {EPIPE})" in str(error):
            raise BrokenPipeError(EPIPE, strerror(EPIPE)) from error
        msg = f"cannot write to standard output: {error.strerror or error}"
        raise OutputError(msg) from error


def print_lines(screen: Console, lines: Iterable[Text]) -> None:
    """Print the lines, without what controls a terminal: they hold names, and commands with these.

    Raises:
        BrokenPipeError: the reader left.
        OutputError: they cannot be written otherwise.
    """
    with stdout():
        for line in lines:
            line.plain = uncontrolled(line.plain)  # as long as it was, so it keeps its styles
            screen.print(line)
        screen.file.flush()


Form = Literal["table", "csv", "md", "parquet"]

_ROWS_OF_A_SCREEN: Final = 40


@dataclass(frozen=True, kw_only=True)
class Style:
    """How a table is printed.

    Attributes:
        form: for people (`table`, `md`) or for programs.
        columns: the columns to print; None for those that matter most.
        wide: all columns, and no name shortened.
        top: how many rows; None for a screen of them on a terminal, elsewhere all.
    """

    form: Form = "table"
    columns: tuple[str, ...] | None = None
    wide: bool = False
    top: int | None = None

    @property
    def for_people(self) -> bool:
        """Whether it is printed as text, and not as a file for programs."""
        return self.form in ("table", "md")


def style_of(
    table: str, *, columns: str | None, wide: bool, form: Form | None, top: int | None
) -> Style:
    """What was typed, as a `Style`.

    Raises:
        click.UsageError: the table has no such column.
    """
    chosen = None if columns is None else _columns_of(table, columns)
    return Style(form=form or "table", columns=chosen, wide=wide, top=top)


def _columns_of(name: str, typed: str) -> tuple[str, ...] | None:
    """The columns of a table in a list such as `gaps,total_ns`; None where the list is empty.

    Raises:
        click.UsageError: the table has no such column.
    """
    known = [*declaration(name).schema]
    wanted = tuple(word.strip() for word in typed.split(",") if word.strip())
    for word in wanted:
        if word not in known:
            msg = f"{name} has no column {word!r}. {near_or_all(word, known, where='--wide')}"
            raise click.UsageError(msg)
    return wanted or None


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
