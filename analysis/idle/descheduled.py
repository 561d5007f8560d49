"""How much of the host code in gaps is a thread's wait for a CPU (spec §29)."""

from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.events.events import Events
from nsysflow.analysis.frames.intervals import (
    Cover,
    between,
    inside,
    merge,
    on_axis,
)
from nsysflow.analysis.idle.host_time import HostTime, between_calls, cut_host_time
from nsysflow.analysis.trace import Trace

BLOCKING: Final = ("sync", "blocking_copy")
"""Classes of calls in which a thread waits for a GPU, not for a CPU."""

STRETCHES: Final = pl.Schema(
    {
        "thread": pl.Int64(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "ran_ns": pl.Int64(),
        "waited_ns": pl.Int64(),
        "counted_ns": pl.Int64(),
    }
)
"""A row per two neighbouring readings of a thread between which its counters did not fall, in
order: how long it ran and how long it waited for a CPU between them, no longer than the time
between them. `counted_ns` is by how much the counter of what it ran rose: that comes late, by up to
a tick of the kernel, and may be more than the time."""
Stretches = Annotated[pl.DataFrame, STRETCHES]

DELAYS: Final = pl.Schema(
    {
        "gap": pl.UInt32(),
        "thread_no": pl.UInt32(),
        "delayed_ns": pl.Int64(),
        "code_ns": pl.Int64(),
    }
)
"""A row per gap and thread with host code between two readings: how long the thread waited for a
CPU in it, and all host code of the gap, on whatever thread, before stalls are charged (spec
§3.12)."""
Delays = Annotated[pl.DataFrame, DELAYS]


def launching(events: Events) -> pl.Series:
    """The numbers of the threads that launched operations."""
    return events.ops["thread_no"].drop_nulls().unique().sort()


def stretches(trace: Trace) -> Stretches:
    """What is known of each thread between its readings.

    In 128 bits, since the times of a damaged report may be anything.
    """
    if trace.thread_cpu.is_empty():
        return STRETCHES.to_frame()
    earlier = [
        pl.col(name).shift(1).over("thread").alias(f"{name}_before")
        for name in ("time_ns", "ran_ns", "waited_ns")
    ]
    ran, waited, length = (
        pl.col(name).cast(pl.Int128) - pl.col(f"{name}_before")
        for name in ("ran_ns", "waited_ns", "time_ns")
    )
    rows = trace.thread_cpu.sort("thread", "time_ns", "ran_ns", "waited_ns").with_columns(*earlier)
    return (
        rows.filter(length > 0, ran >= 0, waited >= 0)
        .select(
            "thread",
            pl.col("time_ns_before").alias("start_ns"),
            pl.col("time_ns").alias("end_ns"),
            pl.min_horizontal(ran, length).alias("ran_ns"),
            pl.min_horizontal(waited, length).alias("waited_ns"),
            ran.alias("counted_ns"),
        )
        .cast(STRETCHES)
    )


PLACED: Final = pl.Schema(
    {
        "stretch": pl.UInt32(),
        "start": pl.Int64(),
        "end": pl.Int64(),
        "open_ns": pl.Int64(),
        "waited_ns": pl.Int64(),
        "row": pl.UInt32(),
    }
)
"""The stretches on the axis of threads, numbered and sorted. `open_ns` is the time in which the
thread may have waited, `waited_ns` no more than that; `row` is that of `stretches`."""
Placed = Annotated[pl.DataFrame, PLACED]


def place_stretches(events: Events, framework_gap_ns: int) -> Placed:
    """The stretches of the threads of a trace; those with time in which the thread may have waited.

    Args:
        events: the trace.
        framework_gap_ns: what a wait takes at least, and a call or the time between two with a wait
            in it.
    """
    axis, length = events.axis, pl.col("end_ns").cast(pl.Int128) - pl.col("start_ns")
    rows = stretches(events.trace).with_columns(length.alias("open_ns")).with_row_index("row")
    rows = inside(rows, axis).join(events.threads[["thread", "thread_no"]], on="thread")
    if rows.is_empty():
        return PLACED.to_frame()
    placed = rows[["open_ns", "waited_ns", "row"]].hstack(on_axis(rows, axis, "thread_no"))
    placed = placed.sort("start").with_row_index("stretch")
    closed = without_waits(events, framework_gap_ns)
    open_ns = pl.col("open_ns") - closed.between(placed["start"], placed["end"])
    return (
        placed.with_columns(open_ns)
        .filter(pl.col("open_ns") > 0)
        .with_columns(pl.min_horizontal("waited_ns", "open_ns"))
        .select(PLACED.names())
        .cast(PLACED)
    )


def without_waits(events: Events, framework_gap_ns: int) -> Cover:
    """The time of threads in which they wait for no CPU: in calls that block, and in calls and
    between calls where that is too short."""
    calls = events.calls.filter(pl.col("class") != "api")
    spans = on_axis(calls, events.axis, "thread_no").with_columns(calls["class"])
    pauses = between(merge(spans)).slice(1)[:-1]
    short = pl.col("end") - pl.col("start") <= framework_gap_ns
    blocks = pl.col("class").is_in(BLOCKING)
    closed = [spans.filter(short | blocks).drop("class"), pauses.filter(short)]
    return Cover(merge(pl.concat(closed)))


def delays(
    events: Events,
    hosts: HostTime,
    waiting: pl.DataFrame,
    placed: Annotated[pl.DataFrame | None, PLACED],
) -> Delays:
    """The waits for a CPU in the host code of gaps.

    Args:
        events: the trace.
        hosts: what the host did at every instant.
        waiting: the gaps that it kept waiting, as `HostSide` has them.
        placed: what is known of threads between their readings; None where nobody asks.
    """
    if placed is None or placed.is_empty():
        return DELAYS.to_frame()
    rest = between(placed).filter(pl.col("end") > pl.col("start"))
    tiles = pl.concat([placed, rest], how="diagonal").sort("start")
    cut = cut_host_time(events, waiting, tiles)
    start, end = cut["start"], cut["end"]
    ns = {name: cover.between(start, end) for name, cover in hosts.covers.items()}
    code_ns, _ = between_calls(ns, end - start)
    pieces = cut.with_columns(code_ns.alias("ns"), *tiles[cut["tile"]].drop("start", "end"))
    code = pieces.group_by("gap").agg(pl.col("ns").sum().alias("code_ns"))
    shares = (
        pieces.filter(pl.col("ns") > 0)
        .drop_nulls("stretch")
        .group_by("gap", "thread_no", "stretch")
        .agg(pl.col("ns").sum(), pl.col("waited_ns", "open_ns").first())
    )
    delayed = (pl.col("waited_ns").cast(pl.Int128) * pl.col("ns")).floordiv(pl.col("open_ns"))
    return (
        shares.with_columns(delayed.cast(pl.Int64).alias("delayed_ns"))
        .group_by("gap", "thread_no")
        .agg(pl.col("delayed_ns").sum())
        .join(code, on="gap")
        .sort("gap", "thread_no")
        .match_to_schema(DELAYS)
    )
