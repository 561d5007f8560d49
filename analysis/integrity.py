"""What may be wrong with a capture, counted, and what each puts in doubt (spec §12)."""

from typing import Final

import polars as pl

from nsysflow.analysis.calls import LAUNCH
from nsysflow.analysis.intervals import reached_before
from nsysflow.analysis.prepare import Prepared
from nsysflow.analysis.schema import INTEGRITY
from nsysflow.analysis.strays import CLOCK_JUMP_NS

LOST_EVENTS: Final = (
    r"(?i)\b(?:lost|dropped|discarded)\b.*\bevents?\b|\bevents?\b.*\b(?:lost|dropped|discarded)\b"
)
CAPTURE: Final = r"^(?:cuda|cu)Stream(?:Begin|End)Capture"
MAYBE_LOST: Final = r"(?i)not all CUDA events might have been collected"

DOUBT: Final = {
    "kernels before their launch": "latencies and run-ahead: host and GPU clocks disagree",
    "operations without a launch": "their gaps' causes: they are `unknown`",
    "negative durations": "these rows were dropped",
    "launches without an operation": "kernel counts: the profiler lost operations",
    "unattributed operations": "phases: these operations are in none",
    "events lost": "everything: the capture is incomplete",
    "clock jumps": "every duration: a timestamp is days off",
    "overlapping kernels on one stream": "sums of kernel durations: the overlap counts twice",
}
"""Checks in the order they are shown, and what a count that is not zero puts in doubt."""

OF_OPERATIONS: Final = frozenset(
    {
        "kernels before their launch",
        "operations without a launch",
        "unattributed operations",
    }
)
"""Checks whose counts are a share of the operations."""


def count_damage(prepared: Prepared) -> dict[str, int]:
    """How often each check but the attribution finds something."""
    launchless = _launches_without_operation(prepared)
    return {
        "kernels before their launch": _before_their_launch(prepared.ops),
        "operations without a launch": prepared.ops["call"].null_count(),
        "negative durations": prepared.dropped,
        "launches without an operation": launchless,
        "events lost": _events_lost(prepared, launchless),
        "clock jumps": _clock_jumps(prepared),
        "overlapping kernels on one stream": _overlapping(prepared.ops),
    }


def integrity_table(prepared: Prepared, damage: dict[str, int], node: pl.Series) -> pl.DataFrame:
    """The `INTEGRITY` table, without `report`: checks that found something.

    Args:
        prepared: the trace.
        damage: of `count_damage`.
        node: the phase of each operation, null where unattributed; a report without ranges has no
            phases to miss.
    """
    unattributed = node.null_count() if len(prepared.ranges) else 0
    counts = damage | {"unattributed operations": unattributed}
    whole = max(len(prepared.ops), 1)
    rows = [
        {
            "check": check,
            "count": counts[check],
            "share_pct": 100.0 * counts[check] / whole if check in OF_OPERATIONS else None,
            "doubt": doubt,
        }
        for check, doubt in DOUBT.items()
        if counts[check]
    ]
    return pl.DataFrame(rows, schema={k: v for k, v in INTEGRITY.items() if k != "report"})


def _before_their_launch(ops: pl.DataFrame) -> int:
    early = pl.col("start_ns") < pl.col("launch_start_ns")
    return int(ops.select(((pl.col("kind") == "kernel") & early).sum()).item())


def _launches_without_operation(prepared: Prepared) -> int:
    """Launch calls that led to nothing between the first and the last operation, but for those
    that a stream capture recorded instead of running (any thread of the process may capture)."""
    ops = prepared.ops
    if ops.is_empty():
        return 0
    first, last = ops["start_ns"].min(), ops["end_ns"].max()
    calls = prepared.calls.select("start_ns", "end_ns", "thread_no", "correlation", "name", "class")
    led = pl.repeat(value=False, n=len(calls), eager=True).scatter(ops["call"].drop_nulls(), True)
    launching = pl.col("class").is_in(["launch", "blocking_copy", "module_load"])
    within = (pl.col("start_ns") >= first) & (pl.col("end_ns") <= last)
    calls = calls.filter(launching & within & ~led)
    named = pl.col("name").cast(pl.String).str.contains(LAUNCH)
    numbers = prepared.threads.select("thread_no", "process")
    calls = calls.filter(named).join(numbers, on="thread_no")
    if calls.is_empty():
        return 0
    calls = calls.join(
        ops.select("process", "correlation"), on=["process", "correlation"], how="anti"
    )
    # The process's last begin or end of a capture before each call says whether one was going on.
    marks = (
        _captures(prepared)
        .join(numbers, on="thread_no")
        .select(
            "process",
            "start_ns",
            pl.col("name").cast(pl.String).str.contains("Begin").alias("begun"),
        )
    )
    capturing = (
        calls.select("process", "start_ns")
        .sort("start_ns")
        .join_asof(
            marks.sort("start_ns"),
            on="start_ns",
            by="process",
            allow_exact_matches=False,
            check_sortedness=False,
        )
    )
    return len(calls) - int(capturing["begun"].sum())


def _captures(prepared: Prepared) -> pl.DataFrame:
    names = prepared.calls.select(pl.col("name").unique())
    named = names.filter(pl.col("name").cast(pl.String).str.contains(CAPTURE))
    return prepared.calls.join(named, on="name", how="semi")


def _events_lost(prepared: Prepared, launchless: int) -> int:
    """Diagnostics that say so. «Not all CUDA events might have been collected» stands in healthy
    reports too, and counts only when launches lack operations."""
    text = prepared.trace.diagnostics["text"]
    lost = text.str.contains(LOST_EVENTS)
    maybe = text.str.contains(MAYBE_LOST) & ~lost
    return int(lost.sum()) + (int(maybe.sum()) if launchless else 0)


def _clock_jumps(prepared: Prepared) -> int:
    """Leaps of over 7 days from one start to the next, or from a row's start to its end, and rows
    left out for being still further off."""
    if prepared.axis.stride_ns <= CLOCK_JUMP_NS:
        return prepared.strays
    rows = pl.concat(
        [frame.select("start_ns", "end_ns") for frame in (prepared.ops, prepared.calls)]
    )
    steps = rows["start_ns"].sort().diff()
    lengths = rows["end_ns"] - rows["start_ns"]
    leaps = int((steps > CLOCK_JUMP_NS).sum()) + int((lengths > CLOCK_JUMP_NS).sum())
    return leaps + prepared.strays


def _overlapping(ops: pl.DataFrame) -> int:
    """Kernels that start before an earlier one of their stream ended; a graph's own kernels may.

    So may those launched for it: cuBLAS's split-K reductions start 0.1 us early on an H200.
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
