"""How a command ends: one message on stderr and an exit code, whatever stopped it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import click

from nsysflow.errors import ExitCode, NsysflowError
from nsysflow.nearest import near_or_all


class Group(click.Group):
    """Commands that end alike, listed as they were added. A bug keeps its traceback."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:  # noqa: ANN401
        with _ending_in_one_message():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        with _ending_in_one_message():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in self.commands or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        msg = f"no command {name!r}. {near_or_all(name, self.commands, where='nsysflow -h')}"
        raise click.UsageError(msg, ctx)


@contextmanager
def _ending_in_one_message() -> Iterator[None]:
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
    """Print to stderr. If its reader has left, as with `2>&1 | head`, the rest is still done."""
    try:
        click.echo(text, err=True)
    except BrokenPipeError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Drop what is still buffered, whose reader has left: Python would fail to write it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])
