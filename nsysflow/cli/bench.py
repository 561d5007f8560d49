"""`nsysflow bench`: parse, then start the process that imports torch and does the work."""

import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from nsysflow.catalog.options import bench_options
from nsysflow.cli.settings import configured


@click.command(cls=configured())
@bench_options
@click.pass_context
def bench(ctx: click.Context, /, **typed: Any) -> None:
    """Check the fused kernels, and time them on a GPU.

    Runs every kernel unless some are named. Each result is compared with a float64 reference. A
    kernel with a wrong result is not timed, and the exit code is 3. Without a GPU, small shapes run
    in Triton's interpreter and nothing is timed.

    \b
    Example:
        nsysflow bench advantage prio
        nsysflow bench --sweep --csv results.csv
        nsysflow bench --variant triton --variant cuda --dtype bf16
    """
    import subprocess

    # -P: a folder called kernels in the working directory must not be imported instead
    argv = [sys.executable, "-P", "-m", "nsysflow.kernels.bench", *words_of(ctx.command, typed)]
    with _ctrl_c_left_to_the_process():
        code = subprocess.run(argv, check=False).returncode
    if code:
        # a signal's number is negative; a shell adds 128
        sys.exit(code if code > 0 else 128 - code)


@contextmanager
def _ctrl_c_left_to_the_process() -> Iterator[None]:
    """Let the process that was started end by itself: it keeps the rows that it has."""
    before = signal.signal(signal.SIGINT, lambda *_: None)  # to ignore it would be inherited
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def words_of(command: click.Command, typed: Mapping[str, Any]) -> list[str]:
    """The words that give `command` these values when typed."""
    words: list[str] = []
    for parameter in command.params:
        value = typed.get(str(parameter.name))
        if isinstance(parameter, click.Argument):
            words += value or ()
        elif value is True:
            words.append(parameter.opts[0])
        else:
            values = value if isinstance(value, tuple) else (value,)
            words += [word for item in values if item for word in (parameter.opts[0], str(item))]
    return words
