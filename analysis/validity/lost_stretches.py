"""Whether so many operations were lost in stretches that it matters (spec §12.2)."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.steps.ranges import instance_ranges

LEAST_PCT: Final = 1
"""A step that lacks this share of its operations is not what ran: its busy time is too short by as
much, and the difference counts as idle time."""


@dataclass(frozen=True, kw_only=True)
class Lost:
    """What is missing.

    Attributes:
        launches: how many lack their operation, in stretches.
        of: how many launches there are.
        start_ns: when the first of them was called.
        end_ns: when the last of them returned.
    """

    launches: int
    of: int
    start_ns: int
    end_ns: int


def lost_operations(view: View) -> Lost | None:
    """The operations that are missing in stretches; None where they do not matter."""
    timeline = view.timeline
    in_stretches = timeline.launches_in_stretches
    if in_stretches is None:
        return None
    launches = view.calls_in_sight(in_stretches)
    lost = launches.filter("lost")
    if lost.is_empty() or not _matters(launches, timeline):
        return None
    first, last = lost.select(pl.col("start_ns").min(), pl.col("end_ns").max().alias("last")).row(0)
    return Lost(launches=len(lost), of=len(launches), start_ns=first, end_ns=last)


def _matters(launches: pl.DataFrame, timeline: Timeline) -> bool:
    """Whether a step lacks enough of its operations, or a process as a whole.

    Launches are in the order of process and start. Thousands of steps are looked up in them by
    search, and the lost ones between two places are a difference of running sums.
    """
    axis = timeline.events.axis
    processes = launches.select(pl.col("process").unique().sort()).with_row_index("process_no")
    pieces = pl.concat([_steps(timeline), _whole(launches)]).join(processes, on="process")
    called = launches.join(processes, on="process", maintain_order="left")
    places = called.select(axis.at(pl.col("process_no"), pl.col("start_ns"))).to_series()
    first, end = (
        places.search_sorted(
            pieces.select(axis.at(pl.col("process_no"), pl.col(time))).to_series(), side="left"
        )
        for time in ("piece_start", "piece_end")
    )
    lost_before = pl.concat([pl.Series("lost", [0], pl.UInt32), launches["lost"].cum_sum()])
    lost = lost_before.gather(end) - lost_before.gather(first)
    return bool(((lost > 0) & (100 * lost >= LEAST_PCT * (end - first))).any())


def _steps(timeline: Timeline) -> pl.DataFrame:
    """When the host was in each step, with or without operations."""
    return instance_ranges(timeline.attribution, timeline.step_paths).select(
        "process", pl.col("start_ns").alias("piece_start"), pl.col("end_ns").alias("piece_end")
    )


def _whole(launches: pl.DataFrame) -> pl.DataFrame:
    """All of each process. The verdict is of the whole window, and the steps may not fill it."""
    return launches.group_by("process").agg(
        pl.col("start_ns").min().alias("piece_start"),
        (pl.col("start_ns").max() + 1).alias("piece_end"),
    )
