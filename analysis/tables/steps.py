"""The steps one by one, with their time split as in the accounting (spec §8)."""

from typing import Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.schema import STEP_KIND, os_pid
from nsysflow.analysis.selection.bound import bounds, waits_in_stretches
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.steps.kinds import idle_in
from nsysflow.analysis.tables.table import CAUSE_COLUMNS, Column, Table, TableSchema, shared

STEPS: Final = TableSchema(
    """One row per process, device and step. `idle_ns` and the causes are of the gaps that start in
    the step; the other parts are of the step's own window. `kind` says whether the step is typical:
    `steady`, `start-up`, `one-off` (much longer than the steps around it, or with wrong times in a
    graph), `cut-off` by the end of the recording, or `incomplete` (operations were lost in it).
    `bound` is as in phases.""",
    [
        *shared("report process device"),
        Column("step", pl.Int64(), "the step's number on its GPU, from 0"),
        *shared("start_ns end_ns"),
        Column("duration_ns", pl.Int64(), "from its first operation to the next step's first one"),
        *shared("compute_ns comm_exposed_ns copy_exposed_ns"),
        Column("idle_ns", pl.Int64(), "the idle time of the gaps that start in it"),
        *CAUSE_COLUMNS,
        *shared("bound bound_pct"),
        Column("steady", pl.Boolean(), "whether it is a typical step, which the page judges"),
        Column(
            "kind",
            STEP_KIND,
            "steady, start-up, one-off (much longer than the steps around it), cut-off (by the end "
            "of the recording) or incomplete (operations were lost)",
        ),
        Column(
            "inferred",
            pl.Boolean(),
            "whether it was inferred from repeating kernels, as no range says what a step is",
        ),
    ],
)

_CAUSES: Final = [f"{cause}_ns" for cause in CAUSES]


def step_table(view: View) -> pl.DataFrame:
    """The STEPS table."""
    steps = _timed(view)
    other = view.without_unwaited.timeline
    same = other is view.timeline
    idle = steps.select(_CAUSES) if same else idle_in(view.steps, other.gaps, view.events.axis)
    used = steps[["compute_ns"]]
    bound = bounds(pl.concat([used, waits_in_stretches(view, view.steps), idle], how="horizontal"))
    return _in_order(steps.hstack(bound.get_columns()))


def timed_steps(view: View) -> pl.DataFrame:
    """The STEPS table without what bounds each step, which takes a fifth of an analysis."""
    return _in_order(_timed(view))


def _timed(view: View) -> pl.DataFrame:
    """The steps of a view, in its order, with their parts."""
    axis, steps = view.events.axis, view.steps
    inferred = not view.timeline.inferred_steps.is_empty()
    parts = view.busy.parts(steps, axis).drop("window_ns", "idle_ns")
    idle = idle_in(steps, view.timeline.gaps, axis)
    return (
        steps.hstack(parts.get_columns())
        .hstack(idle.get_columns())
        .with_columns(
            (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"),
            pl.sum_horizontal(_CAUSES).alias("idle_ns"),
            pl.lit(inferred).alias("inferred"),
        )
    )


def _in_order(steps: pl.DataFrame) -> pl.DataFrame:
    process = os_pid(pl.col("process")).alias("process")
    return steps.with_columns(process).sort("process", "device", "step")


TABLES: Final = (
    Table(
        name="steps",
        schema=STEPS,
        make=step_table,
        json_key="steps",
        full_rows=20,
        judged=False,
        filled_by="name the range that is one step with --step NAME, or use nsysflow.steps",
        shown=(
            "report process device step kind duration_ns idle_ns compute_ns host_ns "
            "launch_ns sync_ns comm_exposed_ns copy_exposed_ns"
        ),
    ),
)
