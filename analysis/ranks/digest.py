"""What ranks exchange: the few columns of a report from which its run is judged."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import polars as pl

from nsysflow.analysis.declared.notes import Note
from nsysflow.analysis.frames.intervals import Cover, merge, on_axis, reached_before
from nsysflow.analysis.ranks.reduced import Reduced, reduced
from nsysflow.analysis.ranks.schema import BOUNDS, EXCHANGED, JUDGED_STEPS, STEP_NODES
from nsysflow.analysis.replay.replay import recorded
from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.accounting import gpus_of
from nsysflow.analysis.tables.schema import ACCOUNTING
from nsysflow.analysis.tables.steps import timed_steps
from nsysflow.analysis.validity.checks import Failed

if TYPE_CHECKING:
    from nsysflow.analysis.analyze import Tables

_STEP: Final = ["process", "device", "step"]

MOST_OPS: Final = 250_000
"""A report with more operations is not reduced: that takes a second for 100,000 kernels, and ten
for a million."""


@dataclass(frozen=True, kw_only=True)
class Digest:
    """What a run needs of one report; small, so that it can travel.

    Attributes:
        report: the report's name.
        source: what wrote it.
        gpus: `device`, `name` of the GPUs of what is judged.
        notes: what the reader should know of it.
        failed: the checks that it fails.
        step_name: the range that is one step; None without steps.
        collectives: `schema.EXCHANGED`.
        steps: `schema.JUDGED_STEPS`.
        accounting: the ACCOUNTING table of what is judged; empty where a rank has judged steps, as
            these are compared then.
        bounds: `schema.BOUNDS`; empty if the report is not reduced.
        step_nodes: `schema.STEP_NODES`.
    """

    report: str
    source: str
    gpus: pl.DataFrame
    notes: tuple[Note, ...]
    failed: tuple[Failed, ...]
    step_name: str | None
    collectives: pl.DataFrame
    steps: pl.DataFrame
    accounting: pl.DataFrame
    bounds: pl.DataFrame = field(default_factory=BOUNDS.to_frame)
    step_nodes: pl.DataFrame = field(default_factory=STEP_NODES.to_frame)


def digest(tables: "Tables") -> Digest:
    """The digest of one analysed report."""
    trace, judged = tables.trace, tables.judged
    keys = judged.step_keys if judged.view.of_steps else judged.step_keys.clear()
    steps = timed_steps(tables.view).join(
        keys.select(*_STEP, judged=pl.lit(value=True)),
        on=_STEP,
        how="left",
        maintain_order="left",
        nulls_equal=True,
    )
    steps = (
        steps.with_columns(
            pl.lit(trace.report).alias("report"), pl.col("judged").fill_null(value=False)
        )
        .select([*JUDGED_STEPS])
        .match_to_schema(JUDGED_STEPS)
    )
    begins = _begins(tables.timeline)
    program = _reduced(tables.timeline, begins)
    collectives = exchanged(tables.timeline, tables.view, judged.view, program)
    return Digest(
        report=trace.report,
        source=trace.source,
        gpus=gpus_of(judged.view).select("device", "name").sort("device"),
        notes=tables.notes,
        failed=tables.failed_checks,
        step_name=tables.step_name,
        collectives=collectives,
        steps=steps,
        accounting=(
            ACCOUNTING.to_frame() if _has_judged_steps(steps, collectives) else judged.accounting
        ),
        bounds=program.bounds,
        step_nodes=_step_nodes(begins, program),
    )


def _has_judged_steps(steps: pl.DataFrame, collectives: pl.DataFrame) -> bool:
    """Whether a rank has a judged step. Where there are collectives, only those who take part in
    them are ranks (`kernels.ranks_of`)."""
    judged, rank = steps.filter("judged"), ["process", "device"]
    if not collectives.is_empty():
        judged = judged.join(collectives, on=rank, how="semi", nulls_equal=True)
    return not judged.is_empty()


def _begins(timeline: Timeline) -> pl.DataFrame:
    """The operation with which each step begins: `process`, `device`, `step`, `op`."""
    key = ["process", "device_no", "start_ns"]
    ops = timeline.events.ops.select(*key, "op").unique(key, keep="first", maintain_order=True)
    steps = timeline.steps.select(*_STEP, "device_no", "start_ns")
    return steps.join(ops, on=key, nulls_equal=True).sort(_STEP).select(*_STEP, "op")


def _reduced(timeline: Timeline, begins: pl.DataFrame) -> Reduced:
    """The report's program, reduced to its collectives and the begins of its steps.

    A report without collectives, or with more than `MOST_OPS` operations, is not reduced.
    """
    met = timeline.communication["op"]
    if met.is_empty() or len(timeline.events.ops) > MOST_OPS:
        return Reduced.nothing()
    return reduced(recorded(timeline.events).program, met, begins["op"])


def _step_nodes(begins: pl.DataFrame, program: Reduced) -> pl.DataFrame:
    """STEP_NODES."""
    node = _nodes(begins["op"], program.begun)
    following = pl.col("node").shift(-1).over("process", "device").alias("next_node")
    return (
        begins.with_columns(node.alias("node"), os_pid(pl.col("process")).alias("process"))
        .with_columns(following)
        .drop_nulls(["node", "next_node"])
        .select([*STEP_NODES])
        .match_to_schema(STEP_NODES)
    )


def _nodes(ops: pl.Series, node_of: Mapping[int, int]) -> pl.Series:
    """The node of each operation; null where it has none."""
    return pl.Series([node_of.get(op) for op in ops], dtype=pl.UInt32)


def exchanged(timeline: Timeline, selected: View, judged: View, program: Reduced) -> pl.DataFrame:
    """EXCHANGED.

    Args:
        timeline: the whole report.
        selected: what was selected of it.
        judged: what is judged of it.
        program: the report's reduced program.
    """
    kernels = timeline.communication.sort("device", "op")
    begun = (kernels["op"].is_in(view.ops["op"].implode()) for view in (selected, judged))
    return (
        kernels.with_columns(
            pl.col("short_name").cast(pl.String).alias("name"),
            _step_of(kernels, timeline),
            *(rows.alias(name) for rows, name in zip(begun, ("begun", "judged"), strict=True)),
            *_exposed(kernels, timeline),
            _overlapped(kernels, timeline),
            _nodes(kernels["op"], program.met).alias("node"),
        )
        .with_columns(os_pid(pl.col("process")).alias("process"))
        .select([*EXCHANGED])
        .match_to_schema(EXCHANGED)
    )


def _step_of(kernels: pl.DataFrame, timeline: Timeline) -> pl.Series:
    """The number of the step in which each kernel starts; null outside."""
    asked = kernels.select("process", "device_no", "start_ns").with_row_index("row")
    found = asked.sort("start_ns").join_asof(
        timeline.steps.select("process", "device_no", "start_ns", "step", over_ns="end_ns").sort(
            "start_ns"
        ),
        on="start_ns",
        by=["process", "device_no"],
        check_sortedness=False,
    )
    inside = pl.when(pl.col("start_ns") < pl.col("over_ns")).then("step").alias("step")
    return found.sort("row").select(inside).to_series()


def _exposed(kernels: pl.DataFrame, timeline: Timeline) -> list[pl.Series]:
    """The exposed time of each sort on the kernel's device, before its start and until its end."""
    busy, axis = timeline.busy, timeline.events.axis
    places = on_axis(kernels, axis)
    origin = pl.lit(axis.origin_ns)
    begin = kernels.select(axis.at(pl.col("device_no"), origin)).to_series()
    found = []
    for side, name in (("start", "before"), ("end", "until")):
        compute, with_comm, all_work = (
            cover.between(begin, places[side]) for cover in (busy.compute, busy.with_comm, busy.all)
        )
        found += [
            compute.alias(f"compute_{name}_ns"),
            (with_comm - compute).alias(f"comm_{name}_ns"),
            (all_work - with_comm).alias(f"copy_{name}_ns"),
        ]
    return found


def _overlapped(kernels: pl.DataFrame, timeline: Timeline) -> pl.Series:
    """For how long another communication kernel ran on the kernel's device."""
    places = on_axis(kernels, timeline.events.axis)
    reached = reached_before(pl.col("end"))
    both = (
        places.sort("start")
        .select("start", pl.min_horizontal("end", reached).alias("end"), reached.alias("reached"))
        .filter(pl.col("start") < pl.col("reached"), pl.col("start") < pl.col("end"))
    )
    return Cover(merge(both)).between(places["start"], places["end"]).alias("overlapped_ns")
