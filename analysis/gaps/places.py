"""Where the host was during a gap, and in which step the gap lies."""

import polars as pl

from nsysflow.analysis.frames.intervals import Axis
from nsysflow.analysis.gaps.find import with_launches
from nsysflow.analysis.phases.steps import step_of_gaps


def host_questions(gaps: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """The instant at which to find the host: the middle of the gap's time before its launch began.

    Args:
        gaps: of `find_gaps`.
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
    gaps: pl.DataFrame, ops: pl.DataFrame, host_node: pl.Series, steps: pl.DataFrame, axis: Axis
) -> pl.DataFrame:
    """The places of each gap.

    Returns:
        Per gap `node` and `process` (of the operation that ended it), `host_node` (where the host
        was; null where its launch had begun before the gap, or no range was open), `between_node`
        (the same, or else that of the launch), `queue_node` (that of the launch, and inside a
        replay of a graph that of the operation), `step` (in which the gap starts) and `steady`
        (whether that step is).

    Args:
        gaps: of `find_gaps`.
        ops: all operations, with `node` and `launch_node`.
        host_node: the answers to `host_questions`.
        steps: with `steady`.
        axis: of the devices.
    """
    launched_ns = ops["launch_start_ns"].gather(gaps["next_op"])
    asked = (launched_ns > gaps["start_ns"]).fill_null(value=False)
    places = gaps.select(
        *(ops[name].gather(gaps["next_op"]) for name in ("node", "launch_node", "process")),
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
