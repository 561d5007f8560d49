"""Stragglers: which rank was last at the collectives of a run (spec §9.4 to §9.8).

Each report has its own clock. A collective ends on all ranks at about the same time, so the median
difference of those ends is the skew of two clocks. Groups of ranks (say, for tensor parallelism)
have their own collectives with the same names and counts. These do not end together and are left
out.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from nsysflow.analysis.frames.statistics import median_ns
from nsysflow.analysis.ranks.schema import EXCHANGED
from nsysflow.analysis.tables.schema import ARRIVALS, RANKS, REASONS

POINT_TO_POINT: Final = r"(?i)send|recv"
"""Matches the names of kernels in which only two ranks take part."""

TOGETHER: Final = 2
"""The ends of a collective differ by less than its shortest kernel divided by this. On two H200s,
they differed by 2 to 28 us, and the shortest kernel took 135 to 265 us."""

STRAYING: Final = 10
"""Less than one part in this many (by time) of a kind of collectives may end apart. Collectives of
a few us do so if clocks are 28 us off."""

_RANK: Final = ["report_no", "process", "device"]
_KIND: Final = ["name", "communicator"]


def rank_tables(
    reports: Sequence[pl.DataFrame], begun: Sequence[pl.DataFrame] | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The ARRIVALS and RANKS tables of a run; both empty for fewer than two ranks.

    The k-th kernel of a name (and communicator, if NCCL states it) is the same collective on all
    ranks, if all have equally many and they end together. Others are counted but not matched.

    Args:
        reports: COLLECTIVES of each whole report of the run: matching and clocks need all of them.
        begun: those that are selected; None for all.
    """
    rows = _collectives_of(reports)
    counted = rows if begun is None else _collectives_of(begun)
    ranks = (
        counted.select("report", *_RANK)
        .unique()
        .sort(_RANK)
        .with_row_index("rank")
        .with_columns(pl.col("rank").cast(pl.Int64))
    )
    if len(ranks) < 2:
        return ARRIVALS.to_frame(), RANKS.to_frame()
    rows, counted = (
        frame.join(ranks.drop("report"), on=_RANK, nulls_equal=True) for frame in (rows, counted)
    )
    met, clocks = _together(_matched(rows, len(ranks)))
    unseen = met.join(counted, on=["rank", "start_ns"], how="anti")
    met = met.join(unseen, on="collective", how="anti")
    collective = ["collective"]
    aligned = _aligned(met, clocks).with_columns(
        (pl.col("start_ns") - pl.col("start_ns").min().over(collective)).alias("late_ns"),
        (pl.col("start_ns").max().over(collective) - pl.col("start_ns")).alias("waited_ns"),
    )
    arrivals = _arrivals(aligned)
    return arrivals.match_to_schema(ARRIVALS), _ranks(ranks, counted, aligned, arrivals, clocks)


def _collectives_of(reports: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The kernels of collectives, plus `report_no`."""
    numbered = [frame.with_columns(report_no=pl.lit(i)) for i, frame in enumerate(reports)]
    blank = EXCHANGED.to_frame().with_columns(report=pl.lit(""), report_no=pl.lit(0))
    return pl.concat([blank, *numbered], how="diagonal").filter(
        ~pl.col("name").str.contains(POINT_TO_POINT)
    )


def _matched(rows: pl.DataFrame, ranks: int) -> pl.DataFrame:
    """The kernels that may be collectives of all ranks, plus `collective` and `kind`.

    `collective` is its number, `kind` the first number of its name and communicator.
    """
    counts = rows.group_by(*_KIND, "rank").agg(pl.len().alias("count"))
    everywhere = (
        counts.group_by(_KIND)
        .agg(pl.len().alias("ranks"), pl.col("count").n_unique().alias("differ"))
        .filter(pl.col("ranks") == ranks, pl.col("differ") == 1)
    )
    turn = pl.int_range(pl.len()).over("rank", *_KIND).alias("turn")
    members = (
        rows.join(everywhere.select(_KIND), on=_KIND, how="semi", nulls_equal=True)
        .sort("rank", "start_ns", "end_ns", "stream")
        .with_columns(turn)
    )
    key = [*_KIND, "turn"]
    first = members.filter(pl.col("rank") == 0).sort("start_ns", "end_ns", "stream", *_KIND)
    numbers = first.select(*key, pl.int_range(pl.len(), dtype=pl.Int64).alias("collective"))
    return members.join(numbers, on=key, nulls_equal=True).with_columns(
        pl.col("collective").min().over(_KIND).alias("kind")
    )


def _together(met: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The collectives that end together, and the `_clocks` by which they do.

    First each kind is judged by clocks from its own ends, then all that pass by common clocks. Both
    frames are empty where nothing passes.
    """
    alone = _kinds(_aligned(met, _clocks(met, "kind")))
    met = met.join(alone, on="kind", how="semi")
    clocks = _clocks(met)
    each = _aligned(met, clocks)
    agreed = _ends(each.join(_kinds(each), on="kind", how="semi")).filter("together")
    met = met.join(agreed, on="collective", how="semi")
    return met, clocks.join(met, on="report_no", how="semi")


def _ends(aligned: pl.DataFrame) -> pl.DataFrame:
    """Per `collective` its `kind`, `shortest_ns` (its shortest kernel), and `together` (whether it
    ends together)."""
    apart = pl.col("end_ns").max() - pl.col("end_ns").min()
    shortest = (pl.col("end_ns") - pl.col("start_ns")).min()
    return aligned.group_by("kind", "collective").agg(
        shortest.alias("shortest_ns"), (TOGETHER * apart < shortest).alias("together")
    )


def _kinds(aligned: pl.DataFrame) -> pl.DataFrame:
    """The kinds whose collectives nearly all end together."""
    shortest = pl.col("shortest_ns")
    met = STRAYING * shortest.filter(~pl.col("together")).sum() < shortest.sum()
    return _ends(aligned).group_by("kind").agg(met.alias("met")).filter("met").select("kind")


def _aligned(met: pl.DataFrame, clocks: pl.DataFrame) -> pl.DataFrame:
    """The kernels on the first report's clock."""
    on = [name for name in clocks.columns if name != "clock_ns"]
    return met.join(clocks, on=on).with_columns(
        (pl.col("start_ns") - pl.col("clock_ns")).alias("start_ns"),
        (pl.col("end_ns") - pl.col("clock_ns")).alias("end_ns"),
    )


def _clocks(met: pl.DataFrame, *of: str) -> pl.DataFrame:
    """How far each report's clock is ahead of the first: `report_no`, `clock_ns`, for each `of`.

    No rows if the ranks have no collective in common.
    """
    ends = met.group_by("report_no", "collective", *of).agg(pl.col("end_ns").max())
    first = ends.filter(pl.col("report_no") == pl.col("report_no").min())
    ahead = pl.col("end_ns") - pl.col("end_ns_first")
    return (
        ends.join(first, on="collective", suffix="_first")
        .group_by("report_no", *of)
        .agg(median_ns(ahead).alias("clock_ns"))
    )


def _arrivals(aligned: pl.DataFrame) -> pl.DataFrame:
    """ARRIVALS, plus `last_rank`."""
    last_first = aligned.sort("collective", "late_ns", "rank", descending=[False, True, False])
    return (
        last_first.group_by("collective", maintain_order=True)
        .agg(
            pl.col("rank").first().alias("last_rank"),
            pl.col("report").first().alias("last_report"),
            pl.col("device").first().alias("last_device"),
            *(pl.col(name).first() for name in ("name", "operation")),
            pl.col("bytes").max(),
            pl.len().cast(pl.Int64).alias("ranks"),
            pl.col("start_ns").min(),
            pl.col("late_ns").max().alias("spread_ns"),
            (pl.col("end_ns").max() - pl.col("end_ns").min()).alias("ends_spread_ns"),
        )
        .with_columns(
            pl.lit(0, pl.Int64).alias("group"),
            pl.col("last_rank").cast(pl.Int64),
            pl.lit(None, pl.Int64).alias("cost_ns"),
            pl.lit(None, pl.Int64).alias("done_ns"),
        )
        .select(*ARRIVALS)
    )


def _ranks(
    ranks: pl.DataFrame,
    counted: pl.DataFrame,
    aligned: pl.DataFrame,
    arrivals: pl.DataFrame,
    clocks: pl.DataFrame,
) -> pl.DataFrame:
    """RANKS."""
    reference = (
        aligned.filter(pl.col("report_no") == pl.col("report_no").min())
        .group_by("collective")
        .agg(pl.col("end_ns").max().alias("end_there_ns"))
    )
    off = (pl.col("end_ns") - pl.col("end_there_ns")).abs()
    met = (
        aligned.join(reference, on="collective")
        .group_by("rank")
        .agg(
            pl.len().cast(pl.Int64).alias("matched"),
            median_ns(off).alias("residual_ns"),
            pl.col("late_ns", "waited_ns").sum(),
        )
    )
    taken = counted.group_by("rank").agg(pl.len().cast(pl.Int64).alias("collectives"))
    last = arrivals.group_by(pl.col("last_rank").alias("rank")).agg(
        pl.len().cast(pl.Int64).alias("times_last")
    )
    return (
        ranks.join(taken, on="rank")
        .join(met, on="rank", how="left")
        .join(last, on="rank", how="left")
        .join(clocks, on="report_no", how="left")
        .with_columns(
            pl.col("matched", "times_last").fill_null(0),
            pl.lit(None, pl.Int64).alias("cost_ns"),
            *(pl.lit(None, pl.Int64).alias(n) for n in REASONS),
        )
        .sort("rank")
        .select([*RANKS])
        .match_to_schema(RANKS)
    )
