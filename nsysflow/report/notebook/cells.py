"""What a lane shows at the few places that a small picture has: at each, what takes most of it, and
how much of it anything takes."""

from dataclasses import dataclass
from typing import Final

import polars as pl

CELLS: Final = 300
"""How many places a lane has: one for two units of the picture's width."""


LEVELS: Final = 4
"""A place is drawn as high as it is full, in this many levels."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Neighbouring places that show the same.

    Attributes:
        first: the first of them, from 0.
        count: how many they are.
        kind: what they show.
        level: how full they are, 1 to `LEVELS`.
    """

    first: int
    count: int
    kind: str
    level: int


def runs(rows: pl.DataFrame, start_ns: int, end_ns: int) -> list[Run]:
    """What to draw of a lane between two times; at least one place of whatever is there.

    Args:
        rows: `start_ns`, `end_ns`, `kind`; they may overlap.
        start_ns: the left edge of the picture.
        end_ns: its right edge, later than the left one.
    """
    span_ns = end_ns - start_ns
    first, end = pl.col("start_ns") - start_ns, pl.col("end_ns") - start_ns
    seen = rows.filter((end > 0) & (first < span_ns)).select(
        first.clip(0).alias("first_ns"),
        end.clip(upper_bound=span_ns).alias("past_ns"),
        pl.col("kind").cast(pl.String),
    )
    begun = pl.col("first_ns") * CELLS // span_ns
    past = pl.max_horizontal(-(-pl.col("past_ns") * CELLS // span_ns), begun + 1)
    cells = seen.with_columns(pl.int_ranges(begun, past).alias("cell")).explode("cell")
    width_ns = span_ns / CELLS
    edge_ns = pl.col("cell") * width_ns
    covered = pl.min_horizontal("past_ns", edge_ns + width_ns) - pl.max_horizontal(
        "first_ns", edge_ns
    )
    full = pl.col("ns").sum().over("cell") / width_ns
    level = (full * LEVELS).ceil().clip(1, LEVELS).cast(pl.Int64).alias("level")
    most = (
        cells.group_by("cell", "kind")
        .agg(covered.sum().alias("ns"))
        .with_columns(level)
        .sort("cell", "ns", "kind", descending=[False, True, False])
        .unique("cell", keep="first", maintain_order=True)
    )
    same = (pl.struct("kind", "level") == pl.struct("kind", "level").shift()) & (
        pl.col("cell").diff() == 1
    )
    run = (~same.fill_null(value=False)).cum_sum().alias("run")
    joined = most.group_by(run, maintain_order=True).agg(
        pl.col("cell").first(), pl.len(), pl.col("kind", "level").first()
    )
    found = joined.select("cell", "len", "kind", "level").rows()
    return [Run(first=at, count=count, kind=kind, level=level) for at, count, kind, level in found]
