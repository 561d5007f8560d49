"""The command that runs a built-in workload in a child process; nothing here imports torch."""

import sys

from nsysflow.catalog import find, find_variant
from nsysflow.runtime.protocol import Window


def workload_command(
    workload: str,
    variant: str | None,
    precision: str | None,
    on: str,
    window: Window | None,
    options: tuple[str, ...],
) -> tuple[str, tuple[str, ...]]:
    """The run's name, and the command.

    Args:
        workload: the workload's name.
        variant: the variant's name; the default one when None.
        precision: `float` or `bf16`; the workload's default when None.
        on: `cuda` or `cpu`.
        window: the steps to run, of which the active ones are captured; its default when None.
        options: the workload's own options, as typed after `--`.

    Raises:
        UnknownWorkload: there is no workload or variant of that name.
    """
    chosen = find_variant(find(workload), variant).name
    typed = {
        "--variant": chosen,
        "--on": on,
        "--precision": precision,
        "--capture": str(window) if window else None,
    }
    words = [word for name, value in typed.items() if value for word in (name, value)]
    # -P: the working folder may contain a `workloads` that must not be imported
    command = (sys.executable, "-P", "-m", "nsysflow.workloads", workload, *words, *options)
    return f"{workload}-{chosen}", command
