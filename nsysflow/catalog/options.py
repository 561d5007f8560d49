"""The options of workloads and of `nsysflow bench`, declared once for two processes."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import click

from nsysflow.base.errors import near_or_all
from nsysflow.catalog.catalog import Option, Workload, dtypes, kernels, variants
from nsysflow.runtime.protocol import CAPTURE, Window


class OneOf(click.Choice):  # type: ignore[type-arg]  # click 8.1 has no type argument
    """One of the names of some kind, such as `table`."""

    def __init__(self, kind: str, names: Iterable[str]) -> None:
        super().__init__([*names])
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            near = near_or_all(value, self.choices, where="-h")
            self.fail(f"no {self.kind} is called {value!r}. {near}")
        name: str = super().convert(value, param, ctx)
        return name


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


_FILE: Final = click.Path(path_type=Path, dir_okay=False)

_PARAMETERS: Final = (
    click.argument(
        "kernels",
        nargs=-1,
        type=OneOf("kernel", [kernel.name for kernel in kernels()]),
        metavar="[KERNEL]...",
    ),
    click.option(
        "--variant",
        "variants",
        multiple=True,
        type=OneOf("variant", variants()),
        help="Run only this variant (can be repeated).",
    ),
    click.option(
        "--dtype",
        "dtypes",
        multiple=True,
        type=click.Choice([*dtypes()]),
        help="Run only this dtype (can be repeated).",
    ),
    click.option(
        "--sweep", is_flag=True, help="Also run a quarter and four times of each size, on a GPU."
    ),
    click.option("--csv", "csv_file", type=_FILE, metavar="FILE", help="Append the rows to FILE."),
    click.option(
        "--json",
        "json_file",
        type=_FILE,
        metavar="FILE",
        help="Append the rows to FILE, one JSON object per line.",
    ),
    click.option(
        "--inject-error",
        is_flag=True,
        help="Corrupt one result to test the correctness check.",
    ),
)


def bench_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the benchmark's argument and options."""
    for parameter in reversed(_PARAMETERS):
        function = parameter(function)
    return function
