"""Print results to stdout: the page, one table, or report.json."""

import sys
from collections.abc import Iterable

import click
from rich.console import Console
from rich.text import Text

from nsysflow.report.markdown import table_lines
from nsysflow.report.results import Results
from nsysflow.report.tables import named_table, readable, report_json, write_csv, write_parquet
from nsysflow.report.text import page, set_block

PIPED_WIDTH = 110
"""Columns of the page where there is no terminal to ask."""


def show_page(results: Results, *, top: int | None, at_least_ns: int) -> None:
    """The page, as wide as the terminal."""
    console = _console()
    width = console.width if console.is_terminal else PIPED_WIDTH
    _print(console, page(results, width=width, top=top, at_least_ns=at_least_ns))


def show_table(
    results: Results, name: str, form: str, *, top: int | None, at_least_ns: int
) -> None:
    """One table, as people read it (`table`, `md`) or as programs do (`csv`, `parquet`).

    Raises:
        click.UsageError: Parquet would go to a terminal.
    """
    table = named_table(results, name, at_least_ns=at_least_ns)
    if top is not None:
        table = table.head(top)
    if form == "csv":
        write_csv(table, sys.stdout.buffer)
    elif form == "parquet":
        if sys.stdout.isatty():
            msg = "--format parquet is binary: send it to a file, e.g. > table.parquet"
            raise click.UsageError(msg)
        write_parquet(table, sys.stdout.buffer)
    elif form == "md":
        _print(_console(), map(Text, table_lines(readable(table, name))))
    else:
        console = _console()
        width = console.width if console.is_terminal else None
        _print(console, set_block(readable(table, name), width))


def show_json(results: Results) -> None:
    """The document that report.json holds."""
    click.echo(report_json(results), nl=False)


def show_gaps(results: Results, *, at_least_ns: int) -> None:
    """The rows of gaps.csv."""
    gaps = named_table(results, "gaps", at_least_ns=at_least_ns)
    write_csv(gaps, sys.stdout.buffer)


def _console() -> Console:
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


def _print(console: Console, lines: Iterable[Text]) -> None:
    for line in lines:
        console.print(line)
