"""Commands as tests type them, in this process."""

import subprocess
import sys
from pathlib import Path

import click
from click.testing import CliRunner, Result

from nsysflow.cli.main import SUMMARIES, main


def command_of(name: str) -> click.Command:
    """The command of that name."""
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return command


def parsed(name: str, *words: str) -> click.Context:
    """What the command makes of these words, as `nsysflow` would: a command keeps the names of its
    help option from when it is first used."""
    parent = click.Context(main, **main.context_settings)
    return command_of(name).make_context(name, [*words], parent=parent)


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


def imported(*words: str | Path) -> tuple[str, set[str]]:
    """What `nsysflow` prints in a process of its own, and the modules that it imports."""
    argv = [sys.executable, "-X", "importtime", "-m", "nsysflow", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return done.stdout, {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
