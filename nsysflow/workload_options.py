"""The options of a built-in workload, for `nsysflow profile` and for the process that runs it.

That process imports torch, the command does not; so what both know is here.
"""

import os

import click

from nsysflow.catalog import Option, Workload
from nsysflow.handshake import CAPTURE, Window


def workload_options(workload: Workload) -> list[click.Parameter]:
    """Those that every workload has, and its own as the catalog lists them."""
    return [*_shared(workload), *_own(workload)]


def check_workload_options(workload: Workload, typed: tuple[str, ...], ctx: click.Context) -> None:
    """Refuse what the workload would not take; `-h` prints what it takes, and ends the command.

    Args:
        workload: which one.
        typed: what stands after `--`.
        ctx: of the command that will run it.

    Raises:
        click.UsageError: an option is unknown, or has a value that cannot be.
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


def _shared(workload: Workload) -> list[click.Option]:
    return [
        click.Option(
            ["--variant"],
            type=click.Choice([variant.name for variant in workload.variants]),
            default=workload.default,
            show_default=True,
        ),
        click.Option(["--on"], type=click.Choice(["cuda", "cpu"]), default="cuda"),
        click.Option(["--precision"], type=click.Choice(["float", "bf16"]), default="bf16"),
        click.Option(["--seed"], default=0),
        click.Option(
            ["--capture"],
            default=lambda: os.environ.get(CAPTURE, "3:2:5"),
            callback=_window,
            metavar="WAIT:WARMUP:ACTIVE",
            help="How many steps run, and which are captured.",
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="One JSON object, on one line."),
    ]


def _own(workload: Workload) -> list[click.Option]:
    return [
        click.Option(
            [f"--{option.name.replace('_', '-')}"],
            type=_type(option),
            help=f"{option.help}  [default: {option.default}; on a CPU {option.toy}]",
        )
        for option in workload.options
    ]


def _type(option: Option) -> "click.ParamType[int] | click.ParamType[float]":
    """Sizes are 1 or more, times 0 or more; what is negative by default stands for none."""
    if isinstance(option.default, float):
        return click.FloatRange(min=0)
    return click.IntRange(min=1) if option.default > 0 else click.INT


def _window(_ctx: click.Context, _param: click.Parameter, typed: str) -> Window:
    try:
        return Window.parse(typed)
    except ValueError as error:
        msg = f"{typed!r} is not WAIT:WARMUP:ACTIVE, e.g. 3:2:5"
        raise click.BadParameter(msg) from error
