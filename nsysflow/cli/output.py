"""Print to stdout: the page, a table, report.json or the gaps."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import EPIPE
from os import strerror
from typing import BinaryIO

import click
from rich.console import Console
from rich.text import Text

from nsysflow.base.errors import OutputError
from nsysflow.base.screen import console, line_width
from nsysflow.report.page import Length
from nsysflow.report.results import Results
from nsysflow.report.terminal import page, wrapped


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
    lines = page(results, width=line_width(), length=length, top=top, at_least_ns=at_least_ns)
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
    """Print the lines.

    Raises:
        BrokenPipeError: the reader left.
        OutputError: they cannot be written otherwise.
    """
    with stdout():
        for line in lines:
            screen.print(line)
        screen.file.flush()
