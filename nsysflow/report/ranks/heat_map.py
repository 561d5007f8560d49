"""The steps of all ranks as a picture of letters: who took longer than the others, and when.

A rank's own time in a step is all but its exposed communication, in which it may only wait. A cell
says how much longer that is than the median rank's in the same step. Far more ranks and steps than
a screen has room for are put together; their longest then counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

LETTERS: Final = "·░▒▓█"
"""From as long as the median to much longer."""

LONGER_PCT: Final = (2, 5, 10, 20)
"""From so many percent of a step on, the next letter stands. Ranks differ by 1 % by themselves."""

KEY: Final = "  ".join(
    f"{letter} {pct} %" for letter, pct in zip(LETTERS[1:], LONGER_PCT, strict=True)
)
"""What the letters mean."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of the picture: the ranks that it is of, and a letter per stretch of steps."""

    ranks: tuple[int, ...]
    letters: str


def own_ns() -> pl.Expr:
    """A rank's own time in a step, of RANK_STEPS."""
    return pl.col("duration_ns") - pl.col("comm_exposed_ns")


def longer_pct() -> pl.Expr:
    """How much longer a rank's own time is than the median rank's in that step, in percent of the
    median step."""
    own = own_ns()
    more = own - own.median().over("step")
    return 100 * more / pl.col("duration_ns").median().over("step")


def heat_map(rank_steps: pl.DataFrame, alone: Sequence[int], lines: int, width: int) -> list[Line]:
    """The picture in at most so many lines and letters; empty without steps.

    Args:
        rank_steps: RANK_STEPS.
        alone: ranks to show by themselves, first; the others are put together as needed.
        lines: at most this many.
        width: at most this many letters.
    """
    if rank_steps.is_empty():
        return []
    placed = _lines_of(rank_steps["rank"].unique().sort().to_list(), alone, lines)
    number = {rank: line for line, ranks in enumerate(placed) for rank in ranks}
    steps = rank_steps["step"].unique().sort()
    columns = min(len(steps), width)
    column = {step: place * columns // len(steps) for place, step in enumerate(steps)}
    cells = (
        rank_steps.select(
            pl.col("rank").replace_strict(number, return_dtype=pl.Int64).alias("line"),
            pl.col("step").replace_strict(column, return_dtype=pl.Int64).alias("column"),
            longer_pct().alias("pct"),
        )
        .group_by("line", "column")
        .agg(pl.col("pct").max())
    )
    letters = {(line, at): _letter(pct) for line, at, pct in cells.rows()}
    return [
        Line(ranks=ranks, letters="".join(letters.get((line, at), " ") for at in range(columns)))
        for line, ranks in enumerate(placed)
    ]


def _letter(pct: float | None) -> str:
    return LETTERS[sum((pct or 0) >= limit for limit in LONGER_PCT)]


def _lines_of(ranks: list[int], alone: Sequence[int], lines: int) -> list[tuple[int, ...]]:
    """The ranks of each line: those to show alone, then the others, 1, 2, 4, … neighbours each."""
    first = [rank for rank in alone if rank in ranks][: lines // 2]
    room, each = max(1, lines - len(first)), 1
    while len(ranks) > each * room:
        each *= 2
    near = [
        tuple(rank for rank in ranks[at : at + each] if rank not in first)
        for at in range(0, len(ranks), each)
    ]
    return [*((rank,) for rank in first), *filter(None, near)]
