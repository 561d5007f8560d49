"""One-off steps that come back every k-th step (spec §8.18)."""

from typing import Final

import polars as pl

LEAST_TIMES: Final = 3
"""Two pauses have one distance; three that are as far apart are a habit."""

_FOUND: Final = ("stretch", "every")


def with_period(one_offs: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """`one_offs` with `period` (a number for each that repeats, else null) and `every`.

    Args:
        one_offs: `step` and the columns `by`.
        by: what the one-offs of a period have in common.
    """
    distance = (pl.col("step") - pl.col("step").shift(1)).over(by)
    rows = one_offs.sort(*by, "step").with_columns(distance.alias("every"))
    # stretches of equal distances; each begins with the step before the first of them
    stretch = pl.struct(*by, pl.col("every").fill_null(0)).rle_id()
    rows = rows.with_columns(stretch.alias("stretch"))
    long = (pl.len().over("stretch") >= LEAST_TIMES - 1) & (pl.col("every") >= 2)
    rows = rows.with_columns(pl.when(long).then(pl.col(*_FOUND)))
    rows = rows.with_columns(pl.coalesce(name, pl.col(name).shift(-1).over(by)) for name in _FOUND)
    often = pl.len().over("stretch") >= LEAST_TIMES
    return rows.with_columns(pl.when(often).then(pl.col(*_FOUND))).rename({"stretch": "period"})
