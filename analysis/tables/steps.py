"""The steps one by one, with their time split as in the accounting (spec §8)."""

import polars as pl

from nsysflow.analysis.bound.parts import waited_in
from nsysflow.analysis.bound.rule import bounds
from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.frames.intervals import Axis
from nsysflow.analysis.frames.nsys_ids import os_pid
from nsysflow.analysis.phases.steps import SKIPPED_BY_DEFAULT
from nsysflow.analysis.view.view import View


def step_table(view: View) -> pl.DataFrame:
    """The STEPS table.

    The first `--skip` steps are never steady. The default is 0 for a process that captured a window
    of its steps, which leaves out the first ones, and 2 for any other.
    """
    causes = [f"{cause}_ns" for cause in CAUSES]
    axis, steps = view.events.axis, view.steps
    parts = view.busy.parts(steps, axis).drop("window_ns", "idle_ns")
    idle = _idle_in(steps, view.timeline.gaps, axis)
    unhidden = _idle_in(steps, view.unhidden.timeline.gaps, axis)
    bound = bounds(pl.concat([parts, waited_in(view, steps), unhidden], how="horizontal"))
    whole = pl.col("end_ns") - pl.col("start_ns")
    settled = 100 * pl.col("module_load_ns") <= whole
    captured = pl.col("process").is_in(view.trace.captures["process"].implode())
    by_default = pl.when(captured).then(0).otherwise(SKIPPED_BY_DEFAULT)
    skip = view.options.skip
    kept = pl.col("step") >= (by_default if skip is None else skip)
    return (
        steps.hstack(parts.get_columns())
        .hstack(idle.get_columns())
        .hstack(bound.get_columns())
        .with_columns(
            whole.alias("duration_ns"),
            pl.sum_horizontal(causes).alias("idle_ns"),
            (kept & settled & ~pl.col("cut")).alias("steady"),
            os_pid(pl.col("process")).alias("process"),
        )
        .sort("process", "device", "step")
    )


def _idle_in(steps: pl.DataFrame, gaps: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    """Per step the causes of the gaps that start in it, as differences of running sums."""
    causes = pl.col([f"{cause}_ns" for cause in CAUSES])
    place = axis.at(pl.col("device_no"), pl.col("start_ns"))
    starts = gaps.select(place).to_series()
    zero = gaps.select(causes).clear(1).fill_null(0)
    sums = pl.concat([zero, gaps.select(causes.cum_sum())])
    begin = steps.select(place.alias("place"))["place"]
    first = starts.search_sorted(begin)
    past = starts.search_sorted(begin + (steps["end_ns"] - steps["start_ns"]))
    return pl.DataFrame(
        [(sums[name].gather(past) - sums[name].gather(first)) for name in sums.columns]
    )
