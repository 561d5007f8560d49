"""The options of a built-in workload, declared once for two processes.

`nsysflow profile WORKLOAD -- OPTIONS` checks them before it starts anything, and the process that
runs the workload parses them: `python -P -m nsysflow.workloads`. Only that process imports torch.
"""

import os

import click

from nsysflow.catalog.workload import Option, Workload
from nsysflow.runtime.protocol import CAPTURE, Window


def workload_options(workload: Workload) -> list[click.Parameter]:
    """The options that every workload has, then those that only this one has."""
    return [*_shared(workload), *_own(workload)]


def _shared(workload: Workload) -> list[click.Option]:
    return [
        click.Option(
            ["--variant"],
            type=click.Choice([variant.name for variant in workload.variants]),
            default=workload.default,
            show_default=True,
            help="Which variant to run.",
        ),
        click.Option(
            ["--on"],
            type=click.Choice(["cuda", "cpu"]),
            default="cuda",
            show_default=True,
            help="Run on a GPU, or at toy size on the CPU.",
        ),
        click.Option(
            ["--precision"],
            type=click.Choice(["float", "bf16"]),
            default="bf16",
            show_default=True,
            help="Precision of the computation.",
        ),
        click.Option(["--seed"], default=0, help="Seed of weights and data."),
        click.Option(
            ["--capture"],
            default=lambda: os.environ.get(CAPTURE, "3:2:5"),
            callback=window,
            metavar="WAIT:WARMUP:ACTIVE",
            help="How many steps to run, and which to capture.",
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object."),
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
    """Sizes are at least 1 and times at least 0; a negative default means `none`."""
    if isinstance(option.default, float):
        return click.FloatRange(min=0)
    return click.IntRange(min=1) if option.default > 0 else click.INT


def window(_ctx: click.Context, _param: click.Parameter, typed: str | None) -> Window | None:
    """`3:2:5` as a window."""
    if typed is None:
        return None
    try:
        return Window.parse(typed)
    except ValueError as error:
        msg = f"{typed!r} is not WAIT:WARMUP:ACTIVE, e.g. 3:2:5 to capture steps 6 to 10"
        raise click.BadParameter(msg) from error
