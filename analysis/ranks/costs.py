"""What each rank cost the others (spec §9.12)."""

import polars as pl

from nsysflow.analysis.ranks.reasons import with_reasons
from nsysflow.analysis.tables.schema import REASONS


def with_costs(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of `arrivals.aligned`, plus what the rank cost the others since they were last in
    step, where they are in step again, and why; 0 elsewhere.

    Added are `cost_ns`, `reasons.REASONS` that sum to it, and `begun_ns`: when the rank was last in
    step, on its report's own clock, where it cost something (null in the first stretch).
    """
    found = with_reasons(stretches_of(rows), rows)
    return rows.join(
        found, on=["collective", "rank"], how="left", maintain_order="left"
    ).with_columns(pl.col("cost_ns", *REASONS).fill_null(0))


def stretches_of(rows: pl.DataFrame) -> pl.DataFrame:
    """The stretches from one time that ranks are in step to the next in which one rank held up the
    others: `collective`, with which it ends, `previous`, with which the one before it ended,
    `rank`, which held up the others, and `second`, the next one; `cost_ns`; and `own_ns`,
    `second_own_ns`: the exposed time of these two in the collectives of the stretch.

    In between, all took the same time. Those that were held up spent it in exposed communication,
    and the one that held them up has the least of it.

    Args:
        rows: of `arrivals.aligned`.
    """
    each = rows.unique("collective").sort("party", "ended_ns", "collective")
    ends = pl.when("in_step").then("collective")
    stretches = each.select(
        "collective",
        ends.backward_fill().over("party").alias("ending"),
        ends.forward_fill().shift(1).over("party").alias("previous"),
    ).drop_nulls("ending")
    return (
        rows.select("collective", "rank", "awaited_ns", "exposed_ns")
        .join(stretches, on="collective")
        .group_by("ending", "rank")
        .agg(pl.col("previous").first(), pl.col("awaited_ns", "exposed_ns").sum())
        .sort("awaited_ns", "rank")
        .group_by("ending", maintain_order=True)
        .agg(
            pl.col("previous").first(),
            pl.col("rank").first(),
            pl.col("rank").get(1).alias("second"),
            (pl.col("awaited_ns").get(1) - pl.col("awaited_ns").first()).alias("cost_ns"),
            pl.col("exposed_ns").first().alias("own_ns"),
            pl.col("exposed_ns").get(1).alias("second_own_ns"),
        )
        .filter(pl.col("cost_ns") > 0)
        .rename({"ending": "collective"})
    )


def costs_of(rows: pl.DataFrame) -> pl.DataFrame:
    """`rank`, `step`, `cost_ns` and REASONS: what a rank cost in its group where that is most, the
    first of several. The same delay holds up its other groups at the same time.

    Args:
        rows: of `with_costs`.
    """
    each = rows.group_by("rank", "step", "group").agg(pl.col("cost_ns", *REASONS).sum())
    dearest = each.sort("cost_ns", "group", descending=[True, False])
    return dearest.unique(["rank", "step"], keep="first").drop("group")
