"""When each device idled, and where the host was then (spec §3)."""

from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.events.classes import queue_limit_ns
from nsysflow.analysis.events.events import LAUNCH_ORDER, Events, Operations
from nsysflow.analysis.events.graphs import LackingLaunches
from nsysflow.analysis.frames.columns import repeated
from nsysflow.analysis.frames.intervals import (
    Axis,
    last_at_or_before,
    reached_before,
    sort_with_ties,
)
from nsysflow.analysis.phases.attribution import PlacedOps
from nsysflow.analysis.steps.kinds import Steps
from nsysflow.analysis.steps.ranges import step_of_gaps

NEVER_NS: Final = -(2**63)
"""Earlier than any time; stands for missing times that must sort first."""


BARE_GAPS: Final = pl.Schema(
    {
        "gap": pl.UInt32(),
        "device_no": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "next_op": pl.UInt32(),
        "prev_op": pl.UInt32(),
        "next_call": pl.UInt32(),
        "prev_call": pl.UInt32(),
        "lacking": pl.Boolean(),
    }
)
"""A row per gap, numbered `gap`, on the device axis. `next_op` and `prev_op` are rows of the
operations, `next_call` and `prev_call` those of their launches, null without; `lacking` where both
are of one launch of a graph that lacks operations, or the next one waited for what is not in the
report."""
BareGaps = Annotated[pl.DataFrame, BARE_GAPS]

GAP_PLACES: Final = pl.Schema(
    {
        "node": pl.UInt32(),
        "process": pl.Int64(),
        "host_node": pl.UInt32(),
        "between_node": pl.UInt32(),
        "queue_node": pl.UInt32(),
        "step": pl.Int64(),
        "steady": pl.Boolean(),
    }
)
"""A row per gap. `node` and `process` are those of the operation that ended it, `host_node` is
where the host was (null where its launch had begun before the gap, or no range was open),
`between_node` the same, or else that of the launch, `queue_node` that of the launch, and inside a
replay of a graph that of the operation. The gap starts in `step`, which is `steady` or not."""
GapPlaces = Annotated[pl.DataFrame, GAP_PLACES]


def find_gaps(events: Events, lacking: LackingLaunches) -> BareGaps:
    """Gaps of every device, in order.

    Args:
        events: the trace.
        lacking: the launches of which something is not in the report.
    """
    axis = events.axis
    ops = events.ops.lazy().filter(pl.col("end_ns") > pl.col("start_ns"))
    reach = (pl.col("place") + pl.col("end_ns") - pl.col("start_ns")).alias("reach")
    before = reached_before(pl.col("reach"))
    same_device = pl.col("device_no") == pl.col("device_no").shift(1)
    walked = (
        ops.select("op", "place", reach, "device_no").with_columns(before.alias("before")).collect()
    )
    gaps = (
        walked.lazy()
        .filter((pl.col("place") > pl.col("before")) & same_device)
        .select(pl.col("op").alias("next_op"), "device_no", "before", "place")
        .collect()
    )
    gaps = gaps.with_columns(_previous(events.ops, walked, gaps["before"]))
    call = events.ops["call"]
    in_graph = events.ops["graph_node"].is_not_null()
    within = _of_launches(events.ops, lacking.filter(pl.col("lacks") > 0)) & in_graph
    behind = _of_launches(events.ops, lacking.filter(pl.col("lacks") == 0))[gaps["next_op"]]
    next_call, prev_call = (call[gaps[f"{side}_op"]] for side in ("next", "prev"))
    inside = within[gaps["next_op"]] & within[gaps["prev_op"]]
    return gaps.select(
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("gap"),
        "device_no",
        axis.time_ns(pl.col("before")).alias("start_ns"),
        axis.time_ns(pl.col("place")).alias("end_ns"),
        "next_op",
        "prev_op",
        next_call.alias("next_call"),
        prev_call.alias("prev_call"),
        pl.select(pl.when(next_call.eq_missing(prev_call)).then(inside).otherwise(behind))
        .to_series()
        .alias("lacking"),
    )


def ended_unseen(gaps: BareGaps, events: Events) -> pl.DataFrame:
    """`op`, `end_ns`: the operations that ended a gap in which they waited for what was launched
    before the recording, and the gap's end."""
    asked = gaps.filter("lacking", pl.col("next_call").ne_missing(pl.col("prev_call")))
    queued_ns = asked["end_ns"] - events.ops["launch_end_ns"][asked["next_op"]]
    limit_ns = queue_limit_ns(events.calls, asked["next_call"])
    return asked.filter(queued_ns > limit_ns).select("end_ns", op="next_op")


def _of_launches(ops: Operations, launches: LackingLaunches) -> pl.Series:
    """Whether each operation is of one of these launches."""
    if launches.is_empty():
        return repeated(value=False, length=len(ops))
    rows = ops[["op", "process", "correlation"]].join(
        launches, on=["process", "correlation"], how="semi"
    )["op"]
    return ops["op"].is_in(rows.implode())


def with_launches(gaps: BareGaps, ops: Operations) -> pl.DataFrame:
    """`gaps` with the times of the next launch, `next_start_ns` and `next_end_ns`, and the threads
    that launched, `next_no` and `prev_no`; null without a launch.

    Few look at these, and not for long: kept, they would take a fifth of a gap's memory.
    """
    of_next = {"launch_start_ns": "start_ns", "launch_end_ns": "end_ns", "thread_no": "no"}
    return gaps.with_columns(
        *(ops[name][gaps["next_op"]].alias(f"next_{alias}") for name, alias in of_next.items()),
        ops["thread_no"][gaps["prev_op"]].alias("prev_no"),
    )


def _previous(ops: Operations, walked: pl.DataFrame, ends: pl.Series) -> pl.Series:
    """The operation that ends where each gap begins; the one launched last, if several do."""
    reaching = (pl.col("reach") >= pl.col("before")).fill_null(value=True)
    frontier = walked.filter(reaching)[["op", "reach"]]
    tied = frontier["reach"] == frontier["reach"].shift(1)
    if tied.any():
        keys = ops.select("op", *LAUNCH_ORDER, "short_name", "name", "process")
        names = [pl.col(c).cast(pl.String) for c in ("short_name", "name")]
        launched = [pl.col(key).fill_null(NEVER_NS) for key in LAUNCH_ORDER]
        latest_last = [*launched, *names, pl.col("process")]
        frontier = frontier.join(keys, on="op", maintain_order="left")
        frontier = sort_with_ties(frontier, "reach", latest_last)[["op", "reach"]]
    return frontier["op"][last_at_or_before(frontier["reach"], ends)].alias("prev_op")


def host_questions(gaps: BareGaps, ops: Operations) -> pl.DataFrame:
    """The instant at which to find the host: the middle of the gap's time before its launch began.

    Args:
        gaps: all gaps.
        ops: all operations.

    Returns:
        `thread_no` (null where the launch had begun before the gap) and `time_ns`.
    """
    gaps = with_launches(gaps, ops)
    asked = pl.col("next_start_ns") > pl.col("start_ns")
    last = pl.min_horizontal("next_start_ns", "end_ns")
    middle = pl.col("start_ns") + (last - pl.col("start_ns")) // 2  # the sum may pass 2**63
    return gaps.select(pl.when(asked).then("next_no").alias("thread_no"), middle.alias("time_ns"))


def gap_places(
    gaps: BareGaps, ops: PlacedOps, host_node: pl.Series, steps: Steps, axis: Axis
) -> GapPlaces:
    """The places of each gap.

    Args:
        gaps: all gaps.
        ops: all operations.
        host_node: the answers to `host_questions`.
        steps: all steps.
        axis: of the devices.
    """
    launched_ns = ops["launch_start_ns"][gaps["next_op"]]
    asked = (launched_ns > gaps["start_ns"]).fill_null(value=False)
    places = gaps.select(
        *(ops[name][gaps["next_op"]] for name in ("node", "launch_node", "process")),
        host_node.alias("host_node"),
        "device_no",
        "start_ns",
        asked.alias("asked"),
        (pl.col("next_call") == pl.col("prev_call")).fill_null(value=False).alias("in_replay"),
    )
    places = places.with_columns(
        pl.when("asked").then("host_node").otherwise("launch_node").alias("between_node"),
        pl.when("in_replay").then("node").otherwise("launch_node").alias("queue_node"),
    )
    steps_of = step_of_gaps(steps, places, axis)
    places = places.drop("device_no", "start_ns", "launch_node", "asked", "in_replay")
    return places.hstack(steps_of.get_columns())
