"""Print to stdout: the page, one table, report.json, or what the doctor found."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from errno import EPIPE
from io import BytesIO
from os import strerror
from typing import BinaryIO, Final

import click
from rich.console import Console
from rich.text import Text

from nsysflow.doctor import Diagnosis, Machine, as_json
from nsysflow.doctor import page as doctor_page
from nsysflow.errors import OutputError
from nsysflow.report.markdown import table_lines
from nsysflow.report.results import Results
from nsysflow.report.tables import (
    named_table,
    readable,
    report_json,
    write_csv,
    write_gaps_csv,
    write_parquet,
)
from nsysflow.report.terminal import page, set_block

DEAREST_FIRST: Final = {"gaps": "duration_ns", "gap_summary": "total_ns"}
"""Tables that files keep in a stable order, for diff, and people read by cost."""

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
    """One table, as people read it (`table`, `md`) or as programs do (`csv`, `parquet`). Programs
    that read `copies` or `comm` as Parquet want each copy, or kernel, not their sums.

    Raises:
        click.UsageError: Parquet would go to a terminal.
    """
    if (name, form) == ("copies", "parquet"):
        table = results.each_copy()
    elif (name, form) == ("comm", "parquet"):
        table = results.collectives()
    else:
        table = named_table(results, name, at_least_ns=at_least_ns)
    if form in ("table", "md") and name in DEAREST_FIRST:
        table = table.sort(DEAREST_FIRST[name], descending=True, maintain_order=True)
    if top is not None:
        table = table.head(top)
    if table.is_empty():
        click.echo(f"{name} has no rows: what is looked at holds nothing of the kind", err=True)
    if form == "csv":
        with _stdout() as out:
            write_csv(table, out)
    elif form == "parquet":
        if sys.stdout.isatty():
            msg = "--format parquet is binary: send it to a file, e.g. > table.parquet"
            raise click.UsageError(msg)
        whole = BytesIO()
        write_parquet(table, whole)
        with _stdout() as out:
            out.write(whole.getvalue())
    elif form == "md":
        _print(_console(), map(Text, table_lines(readable(table, name))))
    else:
        console = _console()
        width = console.width if console.is_terminal else None
        _print(console, set_block(readable(table, name), width))


def show_json(results: Results) -> None:
    """The document that report.json holds."""
    with _stdout() as out:
        out.write(report_json(results).encode())


def show_diagnosis(diagnosis: Diagnosis, machine: Machine, *, json: bool) -> None:
    """What works on a machine, for people or as a JSON document."""
    if json:
        with _stdout() as out:
            out.write(f"{as_json(diagnosis, machine.home)}\n".encode())
        return
    console = _console()
    width = console.width if console.is_terminal else PIPED_WIDTH
    _print(console, doctor_page(diagnosis, machine.home, width=width))


def show_gaps(results: Results, *, at_least_ns: int) -> None:
    """The rows of gaps.csv."""
    with _stdout() as out:
        write_gaps_csv(results, out, at_least_ns=at_least_ns)


@contextmanager
def _stdout() -> Iterator[BinaryIO]:
    """Standard output, here for bytes.

    Raises:
        BrokenPipeError: the reader left, which click takes quietly.
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


def _console() -> Console:
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


def _print(console: Console, lines: Iterable[Text]) -> None:
    with _stdout():
        for line in lines:
            console.print(line)
        console.file.flush()
