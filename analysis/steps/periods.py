"""One-off steps that come back every k-th step (spec §8.18)."""

from typing import Final

import polars as pl

LEAST_TIMES: Final = 3
"""Two pauses have one distance; three that are as far apart are a habit."""


def with_period(one_offs: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """`one_offs` with `period` (a number for each that repeats, else null) and `every`.

    Args:
        one_offs: `step` and the columns `by`.
        by: what the one-offs of a period have in common.
    """
    rows = one_offs.sort(*by, "step")
    distance = (pl.col("step") - pl.col("step").shift(1)).over(by)
    # a stretch of equal distances; its first step is the one before them
    stretch = pl.struct(*by, distance.fill_null(0)).rle_id().alias("stretch")
    rows = rows.with_columns(distance.alias("every"), stretch)
    long = (pl.len().over("stretch") >= LEAST_TIMES - 1) & (pl.col("every") >= 2)
    own = pl.when(long.fill_null(value=False)).then("stretch")
    rows = rows.with_columns(own.alias("own"))
    begins = pl.col("own").shift(-1).over(by)
    period = pl.coalesce("own", begins).alias("period")
    rows = rows.with_columns(period)
    often = (pl.len().over("period") >= LEAST_TIMES) & pl.col("period").is_not_null()
    every = pl.col("every").max().over("period")
    return (
        rows.with_columns(
            pl.when(pl.col("own").is_null()).then(None).otherwise("every").alias("every")
        )
        .with_columns(pl.when(often).then(every).alias("every"))
        .with_columns(pl.when(often).then("period").alias("period"))
        .drop("own", "stretch")
    )
