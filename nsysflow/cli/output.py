"""Print to stdout: the page, report.json or the gaps."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from errno import EPIPE
from os import strerror
from typing import BinaryIO

from rich.console import Console
from rich.text import Text

from nsysflow.base.errors import OutputError
from nsysflow.base.screen import console, line_width
from nsysflow.report.page import Length
from nsysflow.report.results import Results
from nsysflow.report.terminal import page


def show_page(results: Results, *, full: bool = False, top: int | None, at_least_ns: int) -> None:
    """The page, as wide as the terminal: one screen, or all of it."""
    print_lines(console(), page_lines(results, full=full, top=top, at_least_ns=at_least_ns))


def page_lines(
    results: Results, *, full: bool, top: int | None, at_least_ns: int
) -> Iterator[Text]:
    """The page, as wide as the terminal, line by line."""
    length: Length = "full" if full else "page"
    return page(results, width=line_width(), length=length, top=top, at_least_ns=at_least_ns)


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
