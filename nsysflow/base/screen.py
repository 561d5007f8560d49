"""Standard output as people see it: its width and colours, and what is printed there."""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import EPIPE
from os import strerror
from typing import BinaryIO, Final

import click
from rich.console import Console
from rich.text import Text

from nsysflow.base.errors import OutputError
from nsysflow.base.names import uncontrolled
from nsysflow.base.units import wrapped

PIPED_WIDTH: Final = 110
"""How wide a line is where neither a terminal nor COLUMNS says so."""

_NARROWEST: Final = 40
"""A page does not fit into less; its lines run over instead."""


class _Screen(Console):
    """A console that leaves it to the caller what happens when its reader leaves."""

    def on_broken_pipe(self) -> None:
        raise  # it is called while the BrokenPipeError is handled


def console(width: int | None = None, *, markup: bool = False, soft_wrap: bool = True) -> Console:
    """Standard output: without any escape codes in a pipe, or with NO_COLOR.

    Args:
        width: how wide lines are; `line_width()` when None.
        markup: whether texts hold rich's markup.
        soft_wrap: whether longer lines stay whole.
    """
    plain = bool(os.environ.get("NO_COLOR"))
    return _Screen(
        highlight=False,
        markup=markup,
        emoji=False,
        soft_wrap=soft_wrap,
        width=width or line_width(),
        color_system=None if plain else "auto",
    )


def line_width(piped: int = PIPED_WIDTH) -> int:
    """How wide lines may be: COLUMNS, else the terminal, else `piped`."""
    return max(_NARROWEST, shutil.get_terminal_size((piped, 0)).columns)


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
