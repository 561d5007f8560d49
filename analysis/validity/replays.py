"""How much of the idle time inside CUDA graphs is the recording's (spec §12.8)."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.selection.view import View

_LEAST_PCT: Final = 10
"""Where graphs have a smaller part of the operations' time, idle time in them changes little."""

_LEAST_OF_STEP_PCT: Final = 1
"""Findings that save less of a step are left out too."""

_OF: Final = ("process", "device_no")


@dataclass(frozen=True, kw_only=True)
class RecordedIdle:
    """Idle time between operations of one graph launch, of a step.

    Attributes:
        idle_ns: all of it.
        longer_ns: by how much recorded steps take longer than unprofiled ones.
    """

    idle_ns: int
    longer_ns: int

    @property
    def added_ns(self) -> int:
        """The most of it that the recording can have added."""
        return min(self.idle_ns, self.longer_ns)


def recorded_idle(view: View) -> RecordedIdle | None:
    """That of the process and device where the recording adds most.

    None where it adds less than 1 % of a step, graphs have less than 10 % of the operations' time,
    or no unprofiled step is known.

    Args:
        view: of the judged steps.
    """
    unprofiled = view.trace.captures.drop_nulls("unprofiled_step_ns")
    if unprofiled.is_empty() or not view.of_steps or not view.events.ops["graph_node"].count():
        return None
    length = pl.col("end_ns") - pl.col("start_ns")
    of_graphs = length.filter(pl.col("graph_node").is_not_null()).sum()
    enough = 100 * of_graphs >= _LEAST_PCT * length.sum()
    mostly = view.ops.group_by(_OF).agg(enough.alias("enough")).filter("enough")
    step_ns = length.median().round().cast(pl.Int64)
    longer_ns = step_ns - pl.col("unprofiled_step_ns").first()
    steps = view.steps.join(unprofiled, on="process").group_by(_OF)
    found = (
        steps.agg(
            step_ns.alias("step_ns"),
            longer_ns.alias("longer_ns"),
            pl.len().cast(pl.Int64).alias("steps"),
        )
        .join(mostly, on=_OF)
        .join(_idle(view), on=_OF)
        .with_columns(pl.col("idle_ns") // pl.col("steps"))
        .with_columns(pl.min_horizontal("longer_ns", "idle_ns").alias("added_ns"))
        .filter(
            pl.col("added_ns") > 0,
            100 * pl.col("added_ns") >= _LEAST_OF_STEP_PCT * pl.col("step_ns"),
        )
        .sort("added_ns", "longer_ns", "idle_ns")
        .select("idle_ns", "longer_ns")
    )
    return None if found.is_empty() else RecordedIdle(**found.row(-1, named=True))


def _idle(view: View) -> pl.DataFrame:
    """`process`, `device_no`, `idle_ns`: the gaps between two operations of one graph launch."""
    graph = view.events.ops.select("process", "correlation", "graph_node", "device_no")
    gaps = view.gaps
    before, after = (graph[gaps[side]] for side in ("prev_op", "next_op"))
    inside = before["graph_node"].is_not_null() & after["graph_node"].is_not_null()
    for key in ("process", "correlation"):
        inside &= before[key] == after[key]
    length = (gaps["end_ns"] - gaps["start_ns"]).alias("idle_ns")
    rows = after.select(_OF).with_columns(length).filter(inside)
    return rows.group_by(_OF).agg(pl.col("idle_ns").sum())
