"""The steps one by one, with their time split as in the accounting (spec §8)."""

from typing import Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.selection.bound import bounds, waits_in_stretches
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.steps.kinds import idle_in

_CAUSES: Final = [f"{cause}_ns" for cause in CAUSES]


def step_table(view: View) -> pl.DataFrame:
    """The STEPS table."""
    steps = _timed(view)
    other = view.without_unwaited.timeline
    same = other is view.timeline
    idle = steps.select(_CAUSES) if same else idle_in(view.steps, other.gaps, view.events.axis)
    used = steps.select("compute_ns")
    bound = bounds(pl.concat([used, waits_in_stretches(view, view.steps), idle], how="horizontal"))
    return _in_order(steps.hstack(bound.get_columns()))


def timed_steps(view: View) -> pl.DataFrame:
    """The STEPS table without what bounds each step, which takes a fifth of an analysis."""
    return _in_order(_timed(view))


def _timed(view: View) -> pl.DataFrame:
    """The steps of a view, in its order, with their parts."""
    axis, steps = view.events.axis, view.steps
    parts = view.busy.parts(steps, axis).drop("window_ns", "idle_ns")
    idle = idle_in(steps, view.timeline.gaps, axis)
    return (
        steps.hstack(parts.get_columns())
        .hstack(idle.get_columns())
        .with_columns(
            (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"),
            pl.sum_horizontal(_CAUSES).alias("idle_ns"),
        )
    )


def _in_order(steps: pl.DataFrame) -> pl.DataFrame:
    process = os_pid(pl.col("process")).alias("process")
    return steps.with_columns(process).sort("process", "device", "step")
