"""What may be wrong with a recording, counted, and which numbers it affects (spec §12)."""

from typing import Final

import polars as pl

from nsysflow.analysis.declared.diagnostics import LOST_EVENTS, MAYBE_LOST
from nsysflow.analysis.frames.intervals import reached_before
from nsysflow.analysis.tables.schema import INTEGRITY
from nsysflow.analysis.timeline.events import Events
from nsysflow.analysis.timeline.outliers import CLOCK_JUMP_NS
from nsysflow.analysis.view.view import View

LONG_GRAPH_KERNEL: Final = 100
"""A kernel of a graph that lasts this many times the median of its node has a wrong time stamp: in
the replays of six real reports none lasted over 1.7 times (H200, 2026-11)."""

IMPACT: Final = {
    "kernels before their launch": "latencies and run-ahead: host and GPU clocks disagree",
    "operations without a launch": "their gaps' causes: they are `unknown`",
    "negative durations": "these rows were dropped",
    "launches without an operation": "kernel counts: the profiler lost operations",
    "unattributed operations": "phases: these operations are in none",
    "events lost": "everything: the capture is incomplete",
    "clock jumps": "every duration: a timestamp is days off",
    "overlapping kernels on one stream": "sums of kernel durations: the overlap counts twice",
    "graph operations into other launches": "busy and idle time: their times are wrong",
    "graph kernels over 100 times their median": "busy and idle time: their times are wrong",
}
"""Checks in the order in which they are shown, and which numbers a count above zero affects."""

OF_GRAPHS: Final = (
    "graph operations into other launches",
    "graph kernels over 100 times their median",
)
"""Checks of the times of graphs' operations."""

OF_OPERATIONS: Final = frozenset(
    {
        "kernels before their launch",
        "operations without a launch",
        "unattributed operations",
    }
)
"""Checks that count operations, so that a share of them makes sense."""


def count_damage(events: Events, lost: pl.DataFrame) -> dict[str, int]:
    """How often each check finds something, except unattributed operations.

    Args:
        events: of the trace.
        lost: of `activity.lost_launches`.
    """
    launchless = _between_operations(lost, events.ops)
    return {
        "kernels before their launch": _before_their_launch(events.ops),
        "operations without a launch": events.ops["call"].null_count(),
        "negative durations": events.dropped,
        "launches without an operation": launchless,
        "events lost": _events_lost(events, launchless),
        "clock jumps": _clock_jumps(events),
        "overlapping kernels on one stream": _overlapping(events.ops),
        "graph operations into other launches": _into_other_launches(events.ops),
        "graph kernels over 100 times their median": _long_graph_kernels(events.ops),
    }


def integrity_table(view: View) -> pl.DataFrame:
    """The INTEGRITY table of the whole trace: checks that found something."""
    timeline = view.timeline
    # a report without ranges has no phases to miss
    unattributed = timeline.ops["node"].null_count() if len(view.events.ranges) else 0
    counts = count_damage(view.events, timeline.lost_launches) | {
        "unattributed operations": unattributed
    }
    whole = max(len(view.events.ops), 1)
    rows = [
        {
            "check": check,
            "count": counts[check],
            "share_pct": 100.0 * counts[check] / whole if check in OF_OPERATIONS else None,
            "impact": impact,
        }
        for check, impact in IMPACT.items()
        if counts[check]
    ]
    return pl.DataFrame(rows, schema={k: v for k, v in INTEGRITY.items() if k != "report"})


def _before_their_launch(ops: pl.DataFrame) -> int:
    early = pl.col("start_ns") < pl.col("launch_start_ns")
    return int(ops.select(((pl.col("kind") == "kernel") & early).sum()).item())


def _between_operations(lost: pl.DataFrame, ops: pl.DataFrame) -> int:
    """How many of the launches lie between the first and the last operation."""
    if ops.is_empty():
        return 0
    first, last = ops["start_ns"].min(), ops["end_ns"].max()
    within = (pl.col("start_ns") >= first) & (pl.col("end_ns") <= last)
    return int(lost.select(within.sum()).item())


def _events_lost(events: Events, launchless: int) -> int:
    """Diagnostics that report lost events.

    "Not all CUDA events might have been collected" is in healthy reports too. It counts only when
    launches lack operations.
    """
    text = events.trace.diagnostics["text"]
    lost = text.str.contains(LOST_EVENTS)
    maybe = text.str.contains(MAYBE_LOST) & ~lost
    return int(lost.sum()) + (int(maybe.sum()) if launchless else 0)


def _clock_jumps(events: Events) -> int:
    """Jumps of over 7 days from one start to the next or within a row, and rows that were left out
    because of larger ones."""
    if events.axis.stride_ns <= CLOCK_JUMP_NS:
        return events.outliers
    rows = pl.concat([frame.select("start_ns", "end_ns") for frame in (events.ops, events.calls)])
    steps = rows["start_ns"].sort().diff()
    lengths = rows["end_ns"] - rows["start_ns"]
    leaps = int((steps > CLOCK_JUMP_NS).sum()) + int((lengths > CLOCK_JUMP_NS).sum())
    return leaps + events.outliers


def _overlapping(ops: pl.DataFrame) -> int:
    """Kernels that start before an earlier one of their stream has ended.

    A graph's own kernels may overlap: cuBLAS's split-K reductions start 0.1 us early on an H200.
    """
    lasting = pl.col("end_ns") > pl.col("start_ns")
    streams = ["device_no", "process", "stream"]
    kernels = (
        ops.select("kind", "graph_node", "start_ns", "end_ns", *streams)
        .filter(pl.col("kind") == "kernel", pl.col("graph_node").is_null(), lasting)
        .drop("kind", "graph_node")
    )
    early = pl.col("start_ns") < reached_before(pl.col("end_ns"))
    if not kernels.select(early.over("device_no").any()).item():
        return 0
    numbered = kernels.join(
        kernels.select(streams).unique().with_row_index("stream_no"),
        on=streams,
        maintain_order="left",
    )
    return int(numbered.select(early.over("stream_no").sum()).item())


def _into_other_launches(ops: pl.DataFrame) -> int:
    """Operations of a graph during which one of another launch starts on their stream."""
    if not ops["graph_node"].count():
        return 0
    rows = _on_streams_of_graphs(ops)
    another = pl.col("correlation").ne_missing(pl.col("correlation").shift(1))
    early = pl.col("start_ns") < reached_before(pl.col("end_ns"))
    if not rows.select((another & early).over("stream_no").any()).item():
        return 0
    # in this order, the next operation of another launch is the first of the next run
    rows = rows.sort("stream_no", "start_ns", "op").with_columns(
        pl.struct("stream_no", "correlation").rle_id().alias("run")
    )
    runs = (
        rows.group_by("run", "stream_no", maintain_order=True)
        .agg(pl.col("start_ns").first().alias("begun"), pl.col("start_ns").last().alias("last"))
        .select(
            "run",
            pl.col("begun").shift(-1).over("stream_no").alias("next"),
            pl.col("last").shift(1).over("stream_no").alias("before"),
        )
    )
    into = (pl.col("next") < pl.col("end_ns")) | (pl.col("before") == pl.col("start_ns"))
    graph = rows.filter(pl.col("graph_node").is_not_null())
    return int(graph.join(runs, on="run").select(into.sum()).item())


def _on_streams_of_graphs(ops: pl.DataFrame) -> pl.DataFrame:
    """Operations of some length on streams that graphs use, with `stream_no`."""
    stream = ["device_no", "process", "stream"]
    rows = ops.select("op", "graph_node", "correlation", "start_ns", "end_ns", *stream)
    rows = rows.filter(pl.col("end_ns") > pl.col("start_ns"))
    used = rows.filter(pl.col("graph_node").is_not_null()).select(stream).unique()
    return rows.join(used.with_row_index("stream_no"), on=stream, maintain_order="left")


def _long_graph_kernels(ops: pl.DataFrame) -> int:
    """Kernels of a graph that last over 100 times the median of the same node."""
    kernels = ops.select("kind", "process", "graph_node", "name", "start_ns", "end_ns").filter(
        pl.col("kind") == "kernel", pl.col("graph_node").is_not_null()
    )
    lasts = pl.col("end_ns") - pl.col("start_ns")
    median = lasts.median().over("process", "graph_node", "name")
    return int(kernels.select((lasts > LONG_GRAPH_KERNEL * median).sum()).item())
