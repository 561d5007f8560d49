"""The options of a built-in workload, checked before its process starts."""

import click

from nsysflow.catalog import Workload
from nsysflow.catalog.workload_options import workload_options


def check_workload_options(workload: Workload, typed: tuple[str, ...], ctx: click.Context) -> None:
    """Refuse options that the workload would not take. `-h` prints its options and exits.

    Args:
        workload: which one.
        typed: the words after `--`.
        ctx: the context of the command that will run it.

    Raises:
        click.UsageError: an option is unknown or has an invalid value.
    """
    command = click.Command(workload.name, params=workload_options(workload), help=workload.summary)
    try:
        command.make_context(f"{workload.name} --", [*typed], parent=ctx)
    except click.NoSuchOption as error:
        near = f"; did you mean {error.possibilities[0]}?" if error.possibilities else "."
        msg = (
            f"{workload.name} has no option {error.option_name}{near} See what it has:\n"
            f"  nsysflow profile {workload.name} -- -h"
        )
        raise click.UsageError(msg, ctx) from error
    except click.UsageError as error:
        msg = f"{workload.name}: {error.format_message()}"
        raise click.UsageError(msg, ctx) from error
