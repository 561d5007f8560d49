"""Counters that are not sampled: how busy a GPU is, and how far the host runs ahead."""

from typing import Final

import polars as pl

_MOST_BINS: Final = 1000
"""As many as a screen can show."""


def busy_share(gaps: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    """How much of each bin a GPU was busy.

    Args:
        gaps: `start_ns` and `end_ns` of the GPU's gaps, in order.
        start_ns: of the GPU's first operation.
        end_ns: of its last one.

    Returns:
        `time_ns`, the start of each bin, and `value`, 0 to 100; at `end_ns` 0.
    """
    width_ns = bin_ns(end_ns - start_ns)
    edges = pl.int_range(start_ns, end_ns, width_ns, eager=True).append(pl.Series([end_ns]))
    length = pl.col("end_ns") - pl.col("start_ns")
    before = gaps.select("start_ns", "end_ns", (length.cum_sum() - length).alias("before_ns"))
    idle = (
        pl.DataFrame({"time_ns": edges})
        .join_asof(before, left_on="time_ns", right_on="start_ns", coalesce=False)
        .select(
            "time_ns",
            (pl.col("before_ns") + pl.min_horizontal("time_ns", "end_ns") - pl.col("start_ns"))
            .fill_null(0)
            .alias("idle_ns"),
        )
    )
    idle_ns = pl.col("idle_ns").shift(-1) - pl.col("idle_ns")
    of_ns = pl.col("time_ns").shift(-1) - pl.col("time_ns")
    return idle.select("time_ns", (100 - 100 * idle_ns / of_ns).fill_null(0.0).alias("value"))


def bin_ns(window_ns: int) -> int:
    """The length of a bin: 1, 2 or 5 of a power of ten ns."""
    width_ns = 1
    while width_ns * _MOST_BINS < window_ns:
        width_ns = width_ns * 5 // 2 if str(width_ns)[0] == "2" else width_ns * 2
    return width_ns


def run_ahead(launched: pl.DataFrame) -> pl.DataFrame:
    """How many operations are queued: their launch has begun and they have not started (spec §5).
    One that starts before its launch, as clocks disagree, is queued for 1 ns.

    Args:
        launched: `call_ns`, when the launch of each operation began, and `start_ns`.

    Returns:
        `time_ns` of each change and `value` from then on.
    """
    started = pl.max_horizontal("start_ns", pl.col("call_ns") + 1)
    changes = [
        launched.select(at.alias("time_ns"), pl.lit(change, pl.Int64).alias("value"))
        for at, change in ((pl.col("call_ns"), 1), (started, -1))
    ]
    return (
        pl.concat(changes)
        .group_by("time_ns")
        .agg(pl.col("value").sum())
        .filter(pl.col("value") != 0)
        .sort("time_ns")
        .with_columns(pl.col("value").cum_sum())
    )
