"""Options as they are typed: seconds, slices of steps, domains."""

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeVar

import click

from nsysflow.peaks import UNITS

_NS_PER_S: Final = 1_000_000_000
_NS_PER_US: Final = 1_000
_MOST_FLOPS: Final = 1e18
"""As many an H200 does in a quarter of an hour."""

Command = TypeVar("Command", bound=Callable[..., Any])


def seconds(_ctx: click.Context, _param: click.Parameter, typed: str | None) -> int | None:
    """`1.5` seconds as ns."""
    return None if typed is None else _scaled(typed, _NS_PER_S, "seconds")


def microseconds(_ctx: click.Context, _param: click.Parameter, typed: str) -> int:
    """`1.5` microseconds as ns: a length, so not below 0."""
    length_ns = _scaled(typed, _NS_PER_US, "microseconds")
    if length_ns < 0:
        msg = f"{typed!r} is below 0, and no length of time is"
        raise click.BadParameter(msg)
    return length_ns


def steps_slice(
    _ctx: click.Context, _param: click.Parameter, typed: str | None
) -> tuple[int | None, int | None] | None:
    """`2:5` as `(2, 5)`; a side may be empty."""
    if typed is None:
        return None
    sides = typed.split(":")
    if len(sides) != 2 or not all(side.isdecimal() or not side for side in sides):
        msg = f"{typed!r} is not A:B, e.g. 2:5 for the steps 2, 3 and 4"
        raise click.BadParameter(msg)
    first, end = (int(side) if side else None for side in sides)
    if end is not None and end <= (first or 0):
        msg = f"{typed!r} holds no step; B is excluded"
        raise click.BadParameter(msg)
    return first, end


def _scaled(typed: str, ns: int, unit: str) -> int:
    try:
        # Decimal: a float would lose the last ns of a long report's clock
        return round(Decimal(typed) * ns)
    except (InvalidOperation, ValueError, OverflowError) as error:
        msg = f"{typed!r} is not a number of {unit}"
        raise click.BadParameter(msg) from error


_WINDOW: Final = (
    click.option("--device", type=int, metavar="N", help="Look at one GPU only."),
    click.option("--range", metavar="NVTX", help="Look at the instances of one NVTX range."),
    click.option(
        "--from",
        "from_ns",
        callback=seconds,
        metavar="S",
        help="Start at this time of the report; of several, by each one's own clock.",
    ),
    click.option("--to", "to_ns", callback=seconds, metavar="S", help="Stop here."),
    click.option("--step", metavar="NVTX", help="The range that is one step (default: found)."),
    click.option(
        "--skip",
        type=click.IntRange(min=0),
        metavar="N",
        help="Warm-up steps (default 2).",
    ),
    click.option(
        "--steps",
        callback=steps_slice,
        metavar="A:B",
        help="Look at steps A to B - 1, e.g. 2:5 or 2:",
    ),
    click.option(
        "--framework-gap-us",
        "--dispatch-us",
        "framework_gap_ns",
        callback=microseconds,
        default="50",
        show_default=True,
        metavar="US",
        help="Longest time between two calls that counts as the framework's own.",
    ),
    click.option(
        "--domain",
        "domains",
        multiple=True,
        metavar="[-]NAME",
        help="Take an NVTX domain's ranges as phases, or with - do not. Repeatable.",
    ),
)


def _flops(_ctx: click.Context, _param: click.Parameter, typed: float | None) -> float | None:
    """A number of operations: above 0, and fit for 64 bits."""
    if typed is None or 0 < typed <= _MOST_FLOPS:
        return typed
    msg = f"{typed:g} is no number of FLOPs; a step of a large model takes some 1e15 on each GPU"
    raise click.BadParameter(msg)


_FLOPS: Final = (
    click.option(
        "--flops-per-step",
        type=float,
        callback=_flops,
        metavar="F",
        help="FLOPs of one step of one rank, for its MFU (workloads know theirs).",
    ),
    click.option(
        "--flops-dtype",
        type=click.Choice(UNITS),
        help="What it computes in: which peak of the GPU is 100 % (default: bf16).",
    ),
)


def flops_options(command: Command) -> Command:
    """Add the options that say what a step computes."""
    for option in reversed(_FLOPS):
        command = option(command)
    return command


def window_options(command: Command) -> Command:
    """Add the options that choose what is analysed."""
    for option in reversed(_WINDOW):
        command = option(command)
    return command


def split_domains(domains: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """`(added, removed)`: those without and those with a leading `-`."""
    added = tuple(name for name in domains if not name.startswith("-"))
    removed = tuple(name.removeprefix("-") for name in domains if name.startswith("-"))
    return added, removed
