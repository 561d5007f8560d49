"""The command that runs a built-in workload, in a child process: nothing here imports torch."""

import sys

from nsysflow.catalog import find, find_variant
from nsysflow.handshake import Window


def command_of(
    workload: str,
    variant: str | None,
    precision: str | None,
    on: str,
    window: Window | None,
    options: tuple[str, ...],
) -> tuple[str, tuple[str, ...]]:
    """The run's name, and the command.

    Args:
        workload: its name.
        variant: which one; its default when None.
        precision: `float` or `bf16`; the workload's own when None.
        on: `cuda` or `cpu`.
        window: how many steps it runs, by those that are captured; its own when None.
        options: its own, as typed after `--`.

    Raises:
        UnknownWorkload: there is no workload, or no variant, of that name.
    """
    chosen = find_variant(find(workload), variant).name
    typed = {
        "--variant": chosen,
        "--on": on,
        "--precision": precision,
        "--capture": str(window) if window else None,
    }
    words = [word for name, value in typed.items() if value for word in (name, value)]
    # -P: a folder called workloads, where the command is typed, must not be imported instead
    command = (sys.executable, "-P", "-m", "nsysflow.workloads", workload, *words, *options)
    return f"{workload}-{chosen}", command
