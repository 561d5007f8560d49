"""What the ranks of a group share: tensor, pipeline, data or expert parallelism (spec §9.15)."""

from typing import Final

import polars as pl

from nsysflow.analysis.ranks.kernels import ALL_TO_ALL, POINT_TO_POINT
from nsysflow.analysis.tables.schema import GROUP_KIND

_ALL_REDUCE: Final = r"(?i)all_?reduce"
_SHARDED: Final = r"(?i)all_?gather|reduce_?scatter"

EARLY: Final = 4
"""Gradients exist only after the forward pass. An all-reduce in the first part in this many of a
step is of activations."""


def with_kind(groups: pl.DataFrame, rows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """`groups` (a row per group) plus `kind`; null where it cannot be told.

    Args:
        groups: `group`, `members`, `pair`.
        rows: of `arrivals.aligned`, of whole reports.
        steps: of `steps_of`.
    """
    lasts = pl.col("end_ns") - pl.col("start_ns")
    half = lasts.sum() / 2
    exposed = pl.col("comm_until_ns") - pl.col("comm_before_ns")
    traits = rows.group_by("group").agg(
        (lasts.filter(_each_to_each()).sum() > half).alias("each_to_each"),
        (lasts.filter(_is(_ALL_REDUCE)).sum() > half).alias("reduces"),
        (lasts.filter(_is(_SHARDED)).sum() > half).alias("gathers"),
        (exposed.sum() >= half).alias("exposed"),
    )
    members = pl.col("members")
    ranks = rows["rank"].n_unique()
    neighbours = members.list.last() - members.list.first() + 1 == members.list.len()
    early, exposed = pl.col("early"), pl.col("exposed")
    tensor = neighbours & ((pl.col("reduces") & early) | (pl.col("gathers") & exposed))
    data = pl.col("gathers") | (pl.col("reduces") & (~neighbours | ~early))
    kind = (
        pl.when("pair")
        .then(pl.lit("PP"))
        .when("each_to_each")
        .then(pl.lit("EP"))
        .when(members.list.len() == ranks)
        .then(pl.lit("all"))
        .when(tensor)
        .then(pl.lit("TP"))
        .when(data)
        .then(pl.lit("DP"))
    )
    return (
        groups.join(traits, on="group", how="left")
        .join(_early(rows, steps), on="group", how="left")
        .select("group", "members", "pair", kind.cast(GROUP_KIND).alias("kind"))
        .sort("group")
    )


def _is(pattern: str) -> pl.Expr:
    """Whether the kernel's name or NCCL's operation matches."""
    return pl.any_horizontal(
        pl.col(name).str.contains(pattern).fill_null(value=False) for name in ("name", "operation")
    )


def _each_to_each() -> pl.Expr:
    """Whether each rank sends to each: sends and receives of pairs are groups of their own."""
    return _is(ALL_TO_ALL) | pl.col("name").str.contains(POINT_TO_POINT)


def _early(rows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """`group`, `early`: whether its first all-reduce of a step comes early in it, in most steps."""
    when = steps.select("rank", "step", "duration_ns", begin_ns="start_ns")
    soon = EARLY * (pl.col("own_start_ns") - pl.col("begin_ns")) < pl.col("duration_ns")
    firsts = rows.filter(_is(_ALL_REDUCE)).group_by("group", "rank", "step")
    return (
        firsts.agg(pl.col("own_start_ns").min())
        .join(when, on=["rank", "step"])
        .group_by("group")
        .agg((2 * soon.sum() > pl.len()).alias("early"))
    )
