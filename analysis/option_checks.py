"""Options as Python code gives them: wrong types and values are errors of the one family."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Final

import msgspec
import polars as pl

from nsysflow.analysis.options import Options
from nsysflow.base.errors import SelectionError

_COUNTED: Final = ("framework_gap_ns", "skip")
"""Options that cannot be negative."""

_TIMES: Final = ("framework_gap_ns", "from_ns", "to_ns")
_INT64: Final = range(-(2**63), 2**63)
"""What fits into a column of times."""


def require_valid(options: Options) -> None:
    """Check the options before anything is computed.

    Raises:
        SelectionError: an option has the wrong type, or a value that it cannot have.
    """
    try:
        msgspec.convert(asdict(options), Options)
    except msgspec.ValidationError as error:
        expected, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`") or "options"
        expected = f"{expected[:1].lower()}{expected[1:]}"
        raise SelectionError(
            f"Options({name}=…): {expected}", "See help(nsysflow.Options)"
        ) from error
    for name, problem in _problems(options):
        raise SelectionError(f"Options({name}=…): {problem}", "See help(nsysflow.Options)")


def _problems(options: Options) -> Iterator[tuple[str, str]]:
    """Each option with a value that it cannot have, and what is wrong with it."""
    values = asdict(options)
    for name in _TIMES:
        if values[name] is not None and values[name] not in _INT64:
            yield name, f"{values[name]} ns is no time in a report"
    for name in _COUNTED:
        if values[name] is not None and values[name] < 0:
            yield name, f"{values[name]} is negative"
    for part in options.steps:
        if part.first < 0:
            yield "steps", f"{part}: steps are counted from 0"
        if part.end is not None and part.end <= part.first:
            yield "steps", f"{part}: selects no step"
    flops = options.flops_per_step
    if flops is not None and not (math.isfinite(flops) and 0 < flops < 2**63):
        yield "flops_per_step", f"{flops} is not a number of operations"
    for _, pattern in options.kernel_classes:
        try:
            pl.Series([""]).str.contains(pattern)
        except pl.exceptions.ComputeError:
            yield "kernel_classes", f"{pattern!r} is not a regular expression"
