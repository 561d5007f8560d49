"""How long a trace and its steps take: as recorded, or at the times of a replay."""

from dataclasses import dataclass

import polars as pl

from nsysflow.analysis.phases.steps import find_steps
from nsysflow.analysis.pipeline import Timeline
from nsysflow.analysis.steps.chosen import judged_steps

_KEY = ["process", "device", "step"]


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """How long things take.

    Attributes:
        window_ns: from the first operation to the end of the last one, on all devices.
        step_ns: the mean of the steady steps, or of those that were asked for, on the device where
            it is longest; None where there are none.
        steps: how many steps that mean is of.
        selected: whether steps were asked for.
    """

    window_ns: int
    step_ns: int | None
    steps: int
    selected: bool = False


def lengths(timeline: Timeline, ops: pl.DataFrame | None = None) -> Lengths:
    """The lengths as recorded, or with operations at other times.

    Args:
        timeline: the trace.
        ops: `start_ns` and `end_ns` of its operations, in their order.
    """
    wanted = timeline.options.steps
    steps = judged_steps(timeline.steps, wanted)
    if ops is None:
        ops = timeline.events.ops
    else:
        moved = timeline.ops.with_columns(ops["start_ns"], ops["end_ns"], timeline.step_of_ops)
        found = find_steps(timeline.attribution, moved)
        steps = found.join(steps, on=_KEY, how="semi")
    step_ns, count = _slowest(steps)
    lasting = ops.filter(pl.col("end_ns") > pl.col("start_ns"))
    first, last = lasting.select(first=pl.min("start_ns"), last=pl.max("end_ns")).row(0)
    window_ns = 0 if first is None else last - first
    return Lengths(window_ns=window_ns, step_ns=step_ns, steps=count, selected=bool(wanted))


def _slowest(steps: pl.DataFrame) -> tuple[int | None, int]:
    """The longest mean of a process and device, and how many steps it has."""
    mean_ns = (pl.col("end_ns") - pl.col("start_ns")).mean()
    means = steps.group_by("process", "device").agg(mean_ns.alias("mean_ns"), n=pl.len())
    if means.is_empty():
        return None, 0
    mean, count = means.sort("mean_ns", "n").select("mean_ns", "n").row(-1)
    return round(mean), count
