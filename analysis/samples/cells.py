"""Which stack stands for which time of a thread (spec §17.1 to §17.3).

A *cell* is a stretch of a thread's time with the stack that stands for it. torch.profiler records
such stretches; a sample stands for the instants that are nearer to it than to any other.
"""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.intervals import between, inside, on_axis
from nsysflow.analysis.frames.statistics import median_ns
from nsysflow.analysis.timeline.events import Events
from nsysflow.analysis.trace import Trace

REACH: Final = 2
"""A sample stands for nothing that is further away than this many sampling periods: a sampler that
was held up says nothing of the time in which it was."""

CELLS: Final = pl.Schema(
    {"start": pl.Int64(), "end": pl.Int64(), "stack": pl.UInt32(), "cell": pl.UInt32()}
)
"""Stretches that lie end to end, on the axis of threads, sorted. `stack` and `cell` are null where
nothing stands for the time; else `cell` counts up."""


def has_host_stacks(trace: Trace) -> bool:
    """Whether the report says what the host was running."""
    return not (trace.samples.is_empty() and trace.running.is_empty())


def cells(events: Events) -> pl.DataFrame:
    """`CELLS` of all threads."""
    trace, axis = events.trace, events.axis
    exact = not trace.running.is_empty()
    stretches = trace.running if exact else _reach_of_samples(trace.samples)
    threads = events.threads.select("thread", "thread_no")
    standing = inside(stretches, axis).join(threads, on="thread")
    known = on_axis(standing, axis, "thread_no").with_columns(standing["stack"])
    known = known.sort("start").with_row_index("cell")
    rest = between(known).filter(pl.col("end") > pl.col("start"))
    return pl.concat([known, rest], how="diagonal").sort("start").match_to_schema(CELLS)


def _reach_of_samples(samples: pl.DataFrame) -> pl.DataFrame:
    """The time that each sample stands for: `thread`, `start_ns`, `end_ns`, `stack`.

    In 128 bits, since the times of a damaged report may be anything.
    """
    key = ["thread", "time_ns"]
    first = samples.unique(key, keep="first", maintain_order=True).sort(key)
    time = pl.col("time_ns").cast(pl.Int128)
    apart = time.diff().over("thread")
    period = first.select(median_ns(apart.cast(pl.Int64, strict=False))).item()
    if period is None:
        return samples.clear().select("thread", start_ns="time_ns", end_ns="time_ns", stack="stack")
    reach = REACH * period
    begins = (time.shift(1).over("thread") + time).floordiv(2) + 1
    begins = pl.max_horizontal(begins, time - reach)
    ends = (time + time.shift(-1).over("thread")).floordiv(2) + 1
    ends = pl.min_horizontal(ends, time + reach + 1)
    return first.select("thread", begins.alias("start_ns"), ends.alias("end_ns"), "stack")
