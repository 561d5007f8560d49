"""Commands as tests type them, in this process."""

from pathlib import Path

import click
from click.testing import CliRunner, Result

from nsysflow.cli.main import SUMMARIES, main


def command_of(name: str) -> click.Command:
    """The command of that name."""
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return command


COMMANDS = {name: command_of(name) for name in SUMMARIES}
"""All commands by name."""


def run(*words: str | Path, code: int = 0) -> Result:
    """`nsysflow` with these words, which ends with this exit code; a bug keeps its traceback."""
    done = CliRunner().invoke(main, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def refused(*words: str | Path, code: int = 2) -> str:
    """What it says on stderr as it ends so and prints nothing, with single spaces."""
    done = run(*words, code=code)
    assert done.stdout == ""
    return " ".join(done.stderr.split())
