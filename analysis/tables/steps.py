"""The steps one by one, with their time split as in the accounting (spec §8)."""

import polars as pl

from nsysflow.analysis.bound.parts import waited_in
from nsysflow.analysis.bound.rule import bounds
from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.frames.nsys_ids import os_pid
from nsysflow.analysis.steps.idle import idle_in
from nsysflow.analysis.view.view import View


def step_table(view: View) -> pl.DataFrame:
    """The STEPS table."""
    causes = [f"{cause}_ns" for cause in CAUSES]
    axis, steps = view.events.axis, view.steps
    parts = view.busy.parts(steps, axis).drop("window_ns", "idle_ns")
    idle = idle_in(steps, view.timeline.gaps, axis)
    other = view.unhidden.timeline
    unhidden = idle if other is view.timeline else idle_in(steps, other.gaps, axis)
    bound = bounds(pl.concat([parts, waited_in(view, steps), unhidden], how="horizontal"))
    return (
        steps.hstack(parts.get_columns())
        .hstack(idle.get_columns())
        .hstack(bound.get_columns())
        .with_columns(
            (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"),
            pl.sum_horizontal(causes).alias("idle_ns"),
            os_pid(pl.col("process")).alias("process"),
        )
        .sort("process", "device", "step")
    )
