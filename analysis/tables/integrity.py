"""What may be wrong with a recording, counted, and which numbers it affects (spec §12)."""

from typing import Final

import polars as pl

from nsysflow.analysis.events.events import CLOCK_JUMP_NS, Events, Operations
from nsysflow.analysis.events.graphs import LackingLaunches, WrongTimes
from nsysflow.analysis.events.lost_launches import LostLaunches, are_queued
from nsysflow.analysis.frames.intervals import reached_before
from nsysflow.analysis.schema import MOVES_MANAGED_MEMORY
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared
from nsysflow.analysis.trace import LOST_EVENTS, MAYBE_LOST

INTEGRITY: Final = TableSchema(
    """One row per integrity check that found something (spec §12). `impact` says which numbers it
    affects.""",
    [
        *shared("report"),
        Column("check", pl.String(), "what was found"),
        Column("count", pl.Int64(), "how often"),
        Column(
            "share_pct",
            pl.Float64(),
            "the share of all operations, where the check is of operations",
        ),
        Column("impact", pl.String(), "which numbers it affects"),
    ],
)

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
    "graph operations missing": "idle time inside these graphs: its cause is `unknown`",
}
"""Checks in the order in which they are shown, and which numbers a count above zero affects."""

IN_WORDS: Final = {
    "kernels before their launch": "kernel{s} start{v} before their launch: the clocks of host and"
    " GPU disagree, so latencies are wrong",
    "operations without a launch": "operation{s} without a recorded launch: why the GPU idled"
    " before them is unknown",
    "negative durations": "row{s} with a negative duration left out",
    "launches without an operation": "launch{es} without an operation: the profiler lost some, so"
    " kernel counts are too low",
    "unattributed operations": "operation{s} belong{v} to no phase",
    "events lost": "message{s} of lost events: the recording is incomplete",
    "clock jumps": "timestamp{s} days off: no duration here can be trusted",
    "overlapping kernels on one stream": "kernel{s} overlap{v} the one before on the same stream:"
    " sums of kernel durations count that time twice",
    "graph operations into other launches": "operation{s} of CUDA graphs run{v} into the next"
    " launch: busy and idle time around them are wrong",
    "graph kernels over 100 times their median": "kernel{s} of CUDA graphs take{v} over 100 times"
    " the median: busy and idle time around them are wrong",
    "graph operations missing": "operation{s} of CUDA graphs not recorded: what the GPU did"
    " meanwhile is unknown",
}
"""What stands behind the count of each of them in a sentence; `{s}`, `{es}` and `{v}` are endings
of nouns and verbs."""

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


def count_damage(
    events: Events, lost: LostLaunches, wrong: WrongTimes, lacking: LackingLaunches
) -> dict[str, int]:
    """How often each check finds something, except unattributed operations.

    Args:
        events: of the trace.
        lost: of `activity.lost_launches`.
        wrong: times of graphs' operations.
        lacking: launches of graphs that lack operations.
    """
    launchless = _between_operations(lost, events)
    return {
        "kernels before their launch": _before_their_launch(events.ops),
        "operations without a launch": _without_launch(events.ops),
        "negative durations": events.dropped,
        "launches without an operation": launchless,
        "events lost": _events_lost(events, launchless),
        "clock jumps": _clock_jumps(events),
        "overlapping kernels on one stream": _overlapping(events.ops),
        "graph operations into other launches": len(wrong.into_others),
        "graph kernels over 100 times their median": len(wrong.long),
        "graph operations missing": int(lacking["lacks"].sum()),
    }


def integrity_table(view: View) -> pl.DataFrame:
    """The INTEGRITY table of the whole trace: checks that found something."""
    timeline = view.timeline
    # a report without ranges has no phases to miss
    unattributed = timeline.ops["node"].null_count() if len(view.events.ranges) else 0
    damage = count_damage(
        view.events, timeline.lost_launches, timeline.wrong_times, timeline.lacking_launches
    )
    counts = damage | {"unattributed operations": unattributed}
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


def _before_their_launch(ops: Operations) -> int:
    early = pl.col("start_ns") < pl.col("launch_start_ns")
    return int(ops.select(((pl.col("kind") == "kernel") & early).sum()).item())


def _without_launch(ops: Operations) -> int:
    """Operations without a call, but not copies of managed memory: no call makes these."""
    missing = ops.filter(pl.col("call").is_null())["name"].cast(pl.String)
    return len(missing) - int(missing.str.contains(MOVES_MANAGED_MEMORY).sum())


def _between_operations(lost: LostLaunches, events: Events) -> int:
    """How many of the launches lie between the first and the last operation, but for those that
    waited for the GPU when the recording ended."""
    if lost.is_empty() or events.ops.is_empty():
        return 0
    first, last = events.ops["start_ns"].min(), events.ops["end_ns"].max()
    within = (pl.col("start_ns") >= first) & (pl.col("end_ns") <= last)
    queued = are_queued(lost, events, lost)
    return int(lost.select((within & ~queued).sum()).item())


def _events_lost(events: Events, launchless: int) -> int:
    """Diagnostics that report lost events.

    Some of these are in healthy reports too. They count only when launches lack operations.
    """
    text = events.trace.diagnostics["text"]
    maybe = text.str.contains(MAYBE_LOST)
    lost = text.str.contains(LOST_EVENTS) & ~maybe
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


def _overlapping(ops: Operations) -> int:
    """Kernels that start before an earlier one of their stream has ended.

    A graph's own kernels may overlap: cuBLAS's split-K reductions start 0.1 us early on an H200.
    """
    lasting = pl.col("end_ns") > pl.col("start_ns")
    streams = ["device_no", "process", "stream"]
    kernels = (
        ops[["kind", "graph_node", "start_ns", "end_ns", *streams]]
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


TABLES: Final = (
    Table(
        name="integrity",
        schema=INTEGRITY,
        make=integrity_table,
        csv="never",
        json_key="integrity",
        page_rows=0,
        full_rows=64,
        judged=False,
        complete=True,
        filled_by="no check found anything",
        shown="check impact count share_pct report",
    ),
)
