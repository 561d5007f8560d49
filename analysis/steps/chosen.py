"""The steps that an option selects, and those that are judged (spec §8.5, §8.16)."""

import polars as pl

from nsysflow.analysis.options import StepPart, typed_steps
from nsysflow.base.errors import SelectionError

NEVER_JUDGED = ("cut-off", "incomplete")
"""Of these kinds, the recording does not hold the whole step."""


def selected_steps(steps: pl.DataFrame, parts: tuple[StepPart, ...]) -> pl.DataFrame:
    """The steps that `--steps` selects; all where it selects none."""
    taken = [_in(part) for part in parts if not part.out]
    left_out = [_in(part) for part in parts if part.out]
    inside = pl.any_horizontal(taken) if taken else pl.lit(value=True)
    return steps.filter(inside, *(~each for each in left_out))


def require_steps(steps: pl.DataFrame, parts: tuple[StepPart, ...], report: str) -> None:
    """Check that `--steps` selects something.

    Raises:
        SelectionError: it selects no step of the report.
    """
    if not selected_steps(steps, parts).is_empty():
        return
    count = steps["step"].n_unique()
    if not count:
        seen = f"{report} has no steps to choose from"
        raise SelectionError(seen, "Name the range that is one with --step")
    raise SelectionError(
        f"{report} has {count} steps, 0 to {count - 1}: none of them is in {typed_steps(parts)}",
        f"Choose some of them, e.g. --steps 0:{count}",
    )


def judged_steps(steps: pl.DataFrame, parts: tuple[StepPart, ...]) -> pl.DataFrame:
    """The steps that `--steps` selects, as far as they were recorded whole; without it the steady
    ones.

    Args:
        steps: of `with_kinds`.
        parts: of the options.
    """
    if not parts:
        return steps.filter("steady")
    whole = ~pl.col("kind").cast(pl.String).is_in(NEVER_JUDGED)
    return selected_steps(steps, parts).filter(whole)


def _in(part: StepPart) -> pl.Expr:
    number = pl.col("step")
    return (number >= part.first) & (True if part.end is None else number < part.end)
