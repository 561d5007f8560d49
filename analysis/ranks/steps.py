"""The steps of each rank, with how late it came in them."""

import polars as pl

from nsysflow.analysis.ranks.costs import costs_of
from nsysflow.analysis.tables.schema import RANK_STEPS


def rank_steps_table(steps: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """RANK_STEPS.

    Args:
        steps: of `kernels.steps_of`, those to show.
        rows: of `costs.with_costs`, those to sum up; sends and receives are left out.
    """
    rows = rows.filter(pl.col("pair").not_())
    key = ["rank", "step"]
    late = rows.group_by(key).agg(pl.col("late_ns").sum())
    return (
        steps.join(late, on=key, how="left")
        .join(costs_of(rows).select(*key, "cost_ns"), on=key, how="left")
        .with_columns(pl.col("late_ns", "cost_ns").fill_null(0))
        .sort("rank", "step")
        .select([*RANK_STEPS])
        .match_to_schema(RANK_STEPS)
    )
