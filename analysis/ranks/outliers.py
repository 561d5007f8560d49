"""Which ranks are far from the others, and the steps of each (spec §9.16)."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.frames.columns import median_ns, whole_ns
from nsysflow.analysis.ranks.arrivals import costs_of
from nsysflow.analysis.ranks.digest import Digest
from nsysflow.analysis.ranks.groups import ALL_RANKS, NumberedRanks, RunSteps
from nsysflow.analysis.tables.accounting import ACCOUNTING
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

RANK_STEPS: Final = TableSchema(
    """One row per rank and step. The parts of the step are those of the table steps; `late_ns` and
    `cost_ns` are of the collectives whose kernels start in the step on that rank.""",
    [
        *shared("rank report process device"),
        Column("step", pl.Int64(), "the step's number in its report"),
        Column("duration_ns", pl.Int64(), "how long the step takes"),
        *shared("compute_ns comm_exposed_ns copy_exposed_ns idle_ns"),
        Column(
            "late_ns",
            pl.Int64(),
            "how much later than the first rank it came to the collectives of the step, all "
            "together",
        ),
        Column("cost_ns", pl.Int64(), "what it cost the others in the collectives of the step"),
    ],
)

RANK_OUTLIERS: Final = TableSchema(
    """One row per rank and part of a step that is far from the other ranks' (spec §9), the largest
    difference first. `ns` is the rank's mean per judged step, of the window where no steps are
    judged.""",
    [
        *shared("rank report device"),
        Column(
            "part",
            pl.String(),
            "the part of a step: step (all of it), compute, comm_exposed, copy_exposed, idle, or a "
            "cause of idle time",
        ),
        Column(
            "ns",
            pl.Int64(),
            "the rank's mean per judged step; of the window where no steps are judged",
        ),
        Column("median_ns", pl.Int64(), "the median of all ranks"),
        Column(
            "z",
            pl.Float64(),
            "how far it is from the median, by the median distance of all ranks (robust z); empty "
            "where most ranks are equal",
        ),
    ],
)


FAR: Final = 3.5
"""From this robust z on a value is an outlier (Iglewicz and Hoaglin, 1993)."""

_NORMAL: Final = 0.6745
"""The median distance from the median, of a normal distribution with a standard deviation of 1."""


def robust_z(value: pl.Expr, *over: str) -> pl.Expr:
    """How far each value is from the median of all, by their median distance from it; null where
    that distance is 0."""
    away = value - value.median().over(over)
    usual = away.abs().median().over(over)
    return pl.when(usual > 0).then(_NORMAL * away / usual)


def is_far(z: pl.Expr) -> pl.Expr:
    """Whether a value is an outlier. Where most values are equal, any other one is."""
    return (z.abs() > FAR).fill_null(value=True)


_STEP: Final = "step"

PARTS: Final = (_STEP, "compute", "comm_exposed", "copy_exposed", "idle", *CAUSES)
"""The parts of a step that ranks are compared by."""

NOTICED: Final = 100
"""An outlier differs by at least one part in this many of the median step."""


def parts_of_ranks(
    steps: RunSteps, digests: Sequence[Digest], ranks: NumberedRanks
) -> pl.DataFrame:
    """`rank`, `part`, `ns`, `median_ns`, `step_ns` (the median step): means per judged step; of the
    judged window where no rank has such steps.

    Args:
        steps: of `steps_of`.
        digests: of the reports.
        ranks: of `ranks_of`.
    """
    judged = steps.filter("judged").rename({"duration_ns": f"{_STEP}_ns"})
    if judged.is_empty():
        numbered = [
            digest.accounting.with_columns(pl.lit(number, pl.Int64).alias("report_no"))
            for number, digest in enumerate(digests)
        ]
        blank = ACCOUNTING.to_frame().with_columns(pl.lit(0, pl.Int64).alias("report_no"))
        judged = pl.concat([blank, *numbered]).rename({"window_ns": f"{_STEP}_ns"})
        judged = judged.join(ranks, on=["report_no", "device"])
    wide = judged.group_by("rank").agg(whole_ns(pl.col(f"{part}_ns").mean()) for part in PARTS)
    part = pl.col("part").str.strip_suffix("_ns")
    of_step = pl.col("median_ns").filter(pl.col("part") == _STEP).first()
    return (
        wide.unpivot(index="rank", variable_name="part", value_name="ns")
        .with_columns(part, median_ns(pl.col("ns")).over("part").alias("median_ns"))
        .with_columns(of_step.alias("step_ns"))
    )


def outliers_table(parts: pl.DataFrame, ranks: NumberedRanks) -> pl.DataFrame:
    """RANK_OUTLIERS, the largest difference first.

    Args:
        parts: of `parts_of_ranks`.
        ranks: of `ranks_of`.
    """
    away = (pl.col("ns") - pl.col("median_ns")).abs()
    order = pl.col("part").replace_strict(
        {part: at for at, part in enumerate(PARTS)}, return_dtype=pl.Int64
    )
    return (
        parts.with_columns(robust_z(pl.col("ns"), "part").alias("z"))
        .filter(is_far(pl.col("z")), away > 0, NOTICED * away >= pl.col("step_ns"))
        .join(ranks[["rank", "report", "device"]], on="rank")
        .sort(-away, "rank", order)
        .select([*RANK_OUTLIERS])
        .match_to_schema(RANK_OUTLIERS)
    )


def typical_rank(parts: pl.DataFrame) -> int | None:
    """The rank whose parts are closest to the medians, the lowest of several; None without any."""
    away = (pl.col("ns") - pl.col("median_ns")).abs()
    closest = parts.group_by("rank").agg(away.sum().alias("away")).sort("away", "rank")
    return None if closest.is_empty() else int(closest["rank"][0])


def rank_steps_table(steps: RunSteps, rows: pl.DataFrame) -> pl.DataFrame:
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
        .join(costs_of(rows)[[*key, "cost_ns"]], on=key, how="left")
        .with_columns(pl.col("late_ns", "cost_ns").fill_null(0))
        .sort("rank", "step")
        .select([*RANK_STEPS])
        .match_to_schema(RANK_STEPS)
    )


TABLES: Final = (
    Table(
        name="rank_steps",
        schema=RANK_STEPS,
        scope="run",
        csv="with rows",
        json_key="rank_steps",
        page_rows=12,
        full_rows=32,
        complete=True,
        filled_by=ALL_RANKS,
        shown=(
            "rank step duration_ns late_ns cost_ns compute_ns comm_exposed_ns "
            "copy_exposed_ns idle_ns report device"
        ),
    ),
    Table(
        name="rank_outliers",
        schema=RANK_OUTLIERS,
        scope="run",
        csv="with rows",
        json_key="rank_outliers",
        page_rows=3,
        full_rows=64,
        filled_by=ALL_RANKS,
        shown="rank part ns median_ns z report device",
    ),
)
