"""When each device idled, between which operations and launches (spec §3)."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.intervals import last_at_or_before, reached_before, sort_with_ties
from nsysflow.analysis.timeline.events import LAUNCH_ORDER, Events

NEVER_NS: Final = -(2**63)
"""Earlier than any time; stands for missing times that must sort first."""


def find_gaps(events: Events) -> pl.DataFrame:
    """Gaps of every device.

    Returns:
        `gap` (row number), `number` (from 0 on each device), `device_no`, `start_ns`, `end_ns`,
        `next_op` and `prev_op` (rows of the operations). Of the next operation's launch
        `next_call`, `next_start_ns`, `next_end_ns`, `next_no` (its thread), null without a launch;
        `prev_…` of the previous one's.
    """
    axis = events.axis
    ops = events.ops.lazy().filter(pl.col("end_ns") > pl.col("start_ns"))
    reach = (pl.col("place") + pl.col("end_ns") - pl.col("start_ns")).alias("reach")
    before = reached_before(pl.col("reach"))
    same_device = pl.col("device_no") == pl.col("device_no").shift(1)
    walked = (
        ops.select(
            "op",
            "place",
            reach,
            "device_no",
        )
        .with_columns(before.alias("before"))
        .collect()
    )
    gaps = (
        walked.lazy()
        .filter((pl.col("place") > pl.col("before")) & same_device)
        .select(pl.col("op").alias("next_op"), "device_no", "before", "place")
        .collect()
    )
    gaps = gaps.with_columns(_previous(events.ops, walked, gaps["before"]))
    launches = events.ops.select("call", "launch_start_ns", "launch_end_ns", "thread_no")
    gaps = gaps.select(
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("gap"),
        "device_no",
        axis.time_ns(pl.col("before")).alias("start_ns"),
        axis.time_ns(pl.col("place")).alias("end_ns"),
        "next_op",
        "prev_op",
        *_launch_columns(launches, gaps["next_op"], "next"),
        *_launch_columns(launches, gaps["prev_op"], "prev"),
    )
    first = pl.col("gap").first().over("device_no")
    return gaps.with_columns((pl.col("gap") - first).cast(pl.Int64).alias("number"))


def _launch_columns(launches: pl.DataFrame, ops: pl.Series, side: str) -> list[pl.Series]:
    names = {
        "call": "call",
        "launch_start_ns": "start_ns",
        "launch_end_ns": "end_ns",
        "thread_no": "no",
    }
    return [launches[name].gather(ops).alias(f"{side}_{short}") for name, short in names.items()]


def _previous(ops: pl.DataFrame, walked: pl.DataFrame, ends: pl.Series) -> pl.Series:
    """The operation that ends where each gap begins; the one launched last, if several do."""
    reaching = (pl.col("reach") >= pl.col("before")).fill_null(value=True)
    frontier = walked.filter(reaching).select("op", "reach")
    tied = frontier["reach"] == frontier["reach"].shift(1)
    if tied.any():
        keys = ops.select("op", *LAUNCH_ORDER, "short_name", "name", "process")
        names = [pl.col(c).cast(pl.String) for c in ("short_name", "name")]
        launched = [pl.col(key).fill_null(NEVER_NS) for key in LAUNCH_ORDER]
        latest_last = [*launched, *names, pl.col("process")]
        frontier = frontier.join(keys, on="op", maintain_order="left")
        frontier = sort_with_ties(frontier, "reach", latest_last).select("op", "reach")
    return frontier["op"].gather(last_at_or_before(frontier["reach"], ends)).alias("prev_op")
