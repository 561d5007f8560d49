"""A part of a trace as a trace of its own, so that a long report can be replayed quickly."""

from dataclasses import replace

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.pipeline import Timeline


def part_of(timeline: Timeline, from_ns: int, to_ns: int, *, step: str | None) -> Timeline:
    """What the host did in `[from_ns, to_ns)`, and the operations that it launched meanwhile.

    The first operations start when they did: what the GPU still had to do before is not in it.

    Args:
        timeline: the whole trace.
        from_ns: when the part begins, on the host.
        to_ns: when it ends.
        step: the range that is one step, so that a part with few of them has steps too.
    """
    events, trace = timeline.events, timeline.trace
    begun = pl.col("start_ns").is_between(from_ns, to_ns, closed="left")
    threads = events.threads.select("thread_no", "thread", "process")
    calls = events.calls.filter(begun).join(threads, on="thread_no", maintain_order="left")
    launched = pl.coalesce("launch_start_ns", "start_ns")
    ops = events.ops.filter(launched.is_between(from_ns, to_ns, closed="left"))
    open_meanwhile = (pl.col("start_ns") < to_ns) & (pl.col("end_ns") > from_ns)
    ranges = events.ranges.filter(open_meanwhile).with_columns(
        pl.when("ended").then("end_ns").alias("end_ns")
    )
    rows = replace(
        trace,
        ops=ops.select(schema.OPS.names()),
        calls=calls.select(schema.CALLS.names()),
        ranges=ranges.select(schema.RANGES.names()),
        overhead=events.overhead.filter(begun).select(schema.OVERHEAD.names()),
    )
    return Timeline(rows, replace(timeline.options, step=step, steps=()))
