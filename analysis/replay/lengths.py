"""How long a trace and its steps take: as recorded, or at the times of a replay."""

from dataclasses import dataclass

import polars as pl

from nsysflow.analysis.frames.nsys_ids import os_pid
from nsysflow.analysis.phases.steps import find_steps
from nsysflow.analysis.pipeline import Timeline
from nsysflow.analysis.tables.steps import step_table
from nsysflow.analysis.view.view import View

_KEY = ["process", "device", "step"]


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """How long things take.

    Attributes:
        window_ns: from the first operation to the end of the last one, on all devices.
        step_ns: the mean of the steady steps, on the device where it is longest; None where there
            are none.
        steps: how many steps that mean is of.
    """

    window_ns: int
    step_ns: int | None
    steps: int


def lengths(timeline: Timeline, ops: pl.DataFrame | None = None) -> Lengths:
    """The lengths as recorded, or with operations at other times.

    Args:
        timeline: the trace.
        ops: `start_ns` and `end_ns` of its operations, in their order.
    """
    steady = step_table(View(timeline)).filter("steady").select(*_KEY, "duration_ns")
    if ops is None:
        ops = timeline.events.ops
    else:
        moved = timeline.ops.with_columns(ops["start_ns"], ops["end_ns"])
        steps = find_steps(timeline.attribution, timeline.step_paths, moved).with_columns(
            os_pid(pl.col("process")), (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns")
        )
        steady = steps.join(steady.select(_KEY), on=_KEY, how="semi").select(*_KEY, "duration_ns")
    step_ns, count = _slowest(steady)
    lasting = ops.filter(pl.col("end_ns") > pl.col("start_ns"))
    first, last = lasting.select(first=pl.min("start_ns"), last=pl.max("end_ns")).row(0)
    window_ns = 0 if first is None else last - first
    return Lengths(window_ns=window_ns, step_ns=step_ns, steps=count)


def _slowest(steps: pl.DataFrame) -> tuple[int | None, int]:
    """The longest mean of a process and device, and how many steps it has."""
    means = steps.group_by("process", "device").agg(pl.col("duration_ns").mean(), n=pl.len())
    if means.is_empty():
        return None, 0
    mean, count = means.sort("duration_ns", "n").select("duration_ns", "n").row(-1)
    return round(mean), count
