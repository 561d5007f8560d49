"""Stretches of launches whose operations were lost (spec §12.2)."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.activity.lost_launches import outside_capture, with_process
from nsysflow.analysis.pipeline import Timeline
from nsysflow.analysis.timeline.events import Events
from nsysflow.analysis.view.view import View

LEAST_LAUNCHES: Final = 20
"""A stretch has this many launches in a row without an operation. The profiler loses operations by
the buffer, thousands at a time. Single ones are lost in healthy reports too (JAX's copies)."""

LEAST_PCT: Final = 1
"""A step that lacks this share of its operations is not what ran: its busy time is too short by as
much, and the difference counts as idle time."""

_KERNEL_LAUNCH: Final = r"^(?:cuda|cu)(?:Launch|GraphLaunch)"
_NO_KERNEL: Final = r"LaunchHostFunc$"


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
    candidates = _named(timeline.lost_launches.filter(kernel_launches()))
    if len(candidates) < LEAST_LAUNCHES:
        return None
    launches = view.calls_in_sight(_in_stretches(_all(timeline.events), candidates))
    lost = launches.filter("lost")
    if lost.is_empty() or not _matters(launches, timeline):
        return None
    first, last = lost.select(pl.col("start_ns").min(), pl.col("end_ns").max().alias("last")).row(0)
    return Lost(launches=len(lost), of=len(launches), start_ns=first, end_ns=last)


def kernel_launches() -> pl.Expr:
    """Whether a call launches a kernel or a graph."""
    name = pl.col("name").cast(pl.String)
    return name.str.contains(_KERNEL_LAUNCH) & ~name.str.contains(_NO_KERNEL)


def _named(calls: pl.DataFrame) -> pl.DataFrame:
    """The launches by process and correlation id, the outermost call of each; those without an id
    are left out, since nothing can be said of them."""
    order = ["process", "start_ns", pl.col("end_ns").neg(), "correlation"]
    key = ["process", "correlation"]
    return (
        calls.drop_nulls("correlation").sort(order).unique(key, keep="first", maintain_order=True)
    )


def _all(events: Events) -> pl.DataFrame:
    """All kernel launches outside stream capture."""
    names = events.calls.select(pl.col("name").unique()).filter(kernel_launches())
    calls = with_process(events.calls.join(names, on="name", how="semi"), events)
    return _named(outside_capture(calls, events))


def _in_stretches(launches: pl.DataFrame, candidates: pl.DataFrame) -> pl.DataFrame:
    """`launches` with `lost`: whether each is one of a stretch of `candidates`."""
    keys = candidates.select("process", "correlation", pl.lit(value=True).alias("alone"))
    marked = launches.join(keys, on=["process", "correlation"], how="left", maintain_order="left")
    alone = pl.col("alone").fill_null(value=False)
    run = pl.struct("process", alone).rle_id()
    return marked.with_columns((alone & (pl.len().over(run) >= LEAST_LAUNCHES)).alias("lost"))


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
    nodes = timeline.attribution.nodes.join(timeline.step_paths, on=["process", "path"], how="semi")
    ranges = timeline.attribution.ranges.join(nodes, on="range", how="semi")
    return ranges.select(
        "process", pl.col("start_ns").alias("piece_start"), pl.col("end_ns").alias("piece_end")
    )


def _whole(launches: pl.DataFrame) -> pl.DataFrame:
    """All of each process. The verdict is of the whole window, and the steps may not fill it."""
    return launches.group_by("process").agg(
        pl.col("start_ns").min().alias("piece_start"),
        (pl.col("start_ns").max() + 1).alias("piece_end"),
    )
