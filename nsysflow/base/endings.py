"""How a command ends: one message on stderr and an exit code, whatever stopped it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import click

from nsysflow.base.errors import ExitCode, NsysflowError
from nsysflow.base.names import uncontrolled


@contextmanager
def in_one_message() -> Iterator[None]:
    """End the process with a message and a code if the block raises one of our errors, or is
    stopped by Ctrl-C or by a reader that left. A bug keeps its traceback."""
    try:
        yield
    except NsysflowError as error:
        say(message(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt as interrupt:
        say("\n".join(["nsysflow: interrupted", *_notes(interrupt)]))
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        discard(sys.stdout)
        sys.exit(ExitCode.READER_LEFT)


def message(error: NsysflowError) -> str:
    """An error as the command line prints it, with the notes that were added to it."""
    return "\n".join([f"nsysflow: {error}", *_notes(error)])


def say(text: str) -> None:
    """Print to stderr, without what controls a terminal. If its reader has left, as with
    `2>&1 | head`, the rest is still done."""
    try:
        click.echo(uncontrolled(text), err=True)
    except BrokenPipeError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Drop what is still buffered, whose reader has left: Python would fail to write it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])
