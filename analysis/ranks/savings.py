"""How much shorter steps would be if nobody waited for a straggler (spec §9.19)."""

from collections.abc import Callable, Sequence
from typing import Final

import polars as pl

from nsysflow.analysis.frames.statistics import median_ns, whole_ns
from nsysflow.analysis.ranks.digest import Digest
from nsysflow.analysis.ranks.stragglers import PASSED_ON
from nsysflow.analysis.ranks.without import Run

_MOST_STRAGGLERS: Final = 4
"""The run is replayed for so many stragglers, those that cost most. With 1,024 ranks a replay takes
some seconds."""

_STEP: Final = ["rank", "step"]


def run_of(digests: Sequence[Digest], rows: pl.DataFrame) -> Run | None:
    """What is replayed; None if a report with collectives is not reduced.

    Args:
        digests: of all reports.
        rows: of `arrivals.aligned`.
    """
    if not all(each.collectives.is_empty() or len(each.bounds) for each in digests):
        return None
    return Run([each.bounds for each in digests], rows)


def gained_without(
    rank: int, run: Run | None, digests: Sequence[Digest], ranks: pl.DataFrame
) -> pl.DataFrame:
    """`rank`, `step`, `gained_ns`: how much shorter each step of the other ranks would be.

    Steps that no other step follows are left out. Empty if there is nothing to replay.

    Args:
        rank: the one that nobody waits for.
        run: of `run_of`.
        digests: of all reports.
        ranks: of `kernels.ranks_of`.
    """
    earlier_ns = None if run is None else run.without(rank)
    if earlier_ns is None:
        return _GAINED
    nodes = pl.concat(
        [
            each.step_nodes.with_columns(pl.lit(number, pl.Int64).alias("report_no"))
            for number, each in enumerate(digests)
        ]
    )
    gained = [
        earlier_ns[number][following] - earlier_ns[number][node]
        for number, node, following in nodes.select("report_no", "node", "next_node").iter_rows()
    ]
    others = ranks.filter(pl.col("rank") != rank)
    return (
        nodes.with_columns(pl.Series("gained_ns", gained, dtype=pl.Int64))
        .join(others, on=["report_no", "process", "device"], nulls_equal=True)
        .select(_GAINED.columns)
    )


_GAINED: Final = pl.DataFrame(
    schema={"rank": pl.Int64, "step": pl.Int64, "gained_ns": pl.Int64},
)


def with_savings(
    groups: pl.DataFrame,
    members: pl.DataFrame,
    steps: pl.DataFrame,
    gained: Callable[[int], pl.DataFrame],
) -> pl.DataFrame:
    """`groups` plus `saved_step_ns`: how much shorter a step would be if nobody waited for the
    straggler of the group. It is the median over the other ranks of the group.

    Args:
        groups: RANK_GROUPS without savings.
        members: `group`, `pair`, `members` of each group.
        steps: `rank`, `step` of the steps that count.
        gained: of `gained_without`, for a rank.
    """
    held_up = (
        groups.filter(pl.col("steps_last") > 0, ~PASSED_ON)
        .select("group", straggler="rank")
        .join(members.filter(~pl.col("pair")), on="group", maintain_order="left")
        .select("group", "straggler", "members")
    )
    dearest = held_up["straggler"].unique(maintain_order=True).head(_MOST_STRAGGLERS)
    found = [_saved(held_up.clear(), _GAINED, steps)]
    for rank in dearest:
        mine = held_up.filter(pl.col("straggler") == rank)
        found.append(_saved(mine, gained(rank), steps))
    saved = pl.col("saved_step_ns").clip(0, pl.col("cost_step_ns"))
    with_saved = groups.join(pl.concat(found), on="group", how="left", maintain_order="left")
    return with_saved.with_columns(saved)


def _saved(held_up: pl.DataFrame, gained: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """`group`, `saved_step_ns` of the groups of one straggler."""
    of_rank = (
        gained.join(steps, on=_STEP, how="semi")
        .group_by("rank")
        .agg(whole_ns(pl.col("gained_ns").mean()))
    )
    others = held_up.explode("members").rename({"members": "rank"})
    return (
        others.join(of_rank, on="rank")
        .group_by("group")
        .agg(median_ns(pl.col("gained_ns")).alias("saved_step_ns"))
    )
