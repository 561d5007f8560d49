"""`nsysflow bench`: another process does it, since the command line imports no torch."""

import subprocess
import sys
from typing import Any

import click

from nsysflow.bench_options import bench_options, words_of
from nsysflow.settings import configured


@click.command(cls=configured())
@bench_options
@click.pass_context
def bench(ctx: click.Context, /, **typed: Any) -> None:  # noqa: ANN401
    """Check the fused kernels against their references, and time them where there is a GPU.

    Without KERNEL, all of them. A kernel whose result is wrong is not timed, and the exit code is
    3. Without a GPU, Triton's interpreter runs small shapes and nothing is timed.

    \b
    Example:
        nsysflow bench advantage prio
        nsysflow bench --sweep --csv results.csv
        nsysflow bench --variant triton --variant cuda --dtype bf16
    """
    # -P: a folder called kernels, where the command is typed, must not be imported instead
    argv = [sys.executable, "-P", "-m", "nsysflow.kernels.bench", *words_of(ctx.command, typed)]
    code = subprocess.run(argv, check=False).returncode
    if code:
        # a signal's number is negative; a shell adds 128
        sys.exit(code if code > 0 else 128 - code)
