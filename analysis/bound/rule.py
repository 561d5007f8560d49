"""From the parts of some time to what bounds it (spec §15.8)."""

from typing import Final

import polars as pl

from nsysflow.analysis.declared.causes import CAUSES

WORK: Final = ("compute", "communication", "copies")
"""The parts in which the GPU did something that was needed."""

PARTS: Final = (*WORK, *CAUSES)
"""The names of bounds, in the order that breaks ties; the column of each is `NAME_ns`."""

MOST: Final = 3

NEAR: Final = (5, 6)
"""A part joins the largest if it is at least 5/6 of it: within a factor of 1.2."""

LEAST_PCT: Final = 10


def bounds(parts: pl.DataFrame) -> pl.DataFrame:
    """What bounds each row: `bound` (names joined by `+`, empty below 10 %) and `bound_pct` (of the
    first; null where `bound` is empty).

    Args:
        parts: a column for each of `PARTS`.
    """
    columns = [f"{name}_ns" for name in PARTS]
    sums = parts.select(
        pl.sum_horizontal(columns).alias("sum_ns"), pl.max_horizontal(columns).alias("most_ns")
    ).with_row_index("row")
    order = pl.col("part").replace_strict(dict(zip(columns, range(len(columns)), strict=True)))
    near, of = NEAR
    named = (
        parts.select(columns)
        .with_row_index("row")
        .unpivot(columns, index="row", variable_name="part", value_name="ns")
        .join(sums, on="row")
        .filter(pl.col("most_ns") > 0, 100 * pl.col("most_ns") >= LEAST_PCT * pl.col("sum_ns"))
        .filter(of * pl.col("ns") >= near * pl.col("most_ns"))
        .sort("row", -pl.col("ns"), order)
        .group_by("row", maintain_order=True)
        .agg(
            pl.col("part").str.strip_suffix("_ns").head(MOST).str.join("+").alias("bound"),
            (100 * pl.col("most_ns").first() / pl.col("sum_ns").first()).alias("bound_pct"),
        )
    )
    return (
        sums.select("row")
        .join(named, on="row", how="left", maintain_order="left")
        .select(pl.col("bound").fill_null(""), "bound_pct")
    )
