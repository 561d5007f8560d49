"""Loops that only read values back: `for p in params: if p.grad.isnan().any()` (spec §14.21).

Each read makes the GPU compute a value by a few small kernels, and waits for it.
"""

from typing import Final

import polars as pl

from nsysflow.analysis.events.events import Events
from nsysflow.analysis.events.kernel_classes import Rules, class_of
from nsysflow.analysis.replay.calls import outermost

FEWEST_READS: Final = 3
"""Fewer reads are no loop. (Real ones have 146 and 148 a step, one for each parameter, and
three: one for each line of a log.)"""

MOST_KERNELS: Final = 4
"""So many kernels may compute a value: a check for NaN takes two, a norm one or two."""

WORK: Final = ("matmul", "conv", "attention", "optimizer", "triton")
"""Kernels that a program is run for, as communication is and what graphs contain. (Compiled code of
a model that reads a value in each block is all triton: samples/graph_break-breaks.)"""

ACTING_CALLS: Final = pl.Schema(
    {
        "call": pl.UInt32(),
        "thread_no": pl.UInt32(),
        "waits": pl.Boolean(),
        "kernels": pl.UInt32(),
        "kernel_ns": pl.Int64(),
        "works": pl.Boolean(),
    }
)
"""A row per outermost call that launches, waits or allocates, by thread and start: whether it waits
or allocates, how many kernels it launches, their time, and whether they are `WORK`."""

READ_LOOPS: Final = pl.Schema(
    {
        "call": pl.UInt32(),
        "first": pl.Boolean(),
        "kernels": pl.UInt32(),
        "kernel_ns": pl.Int64(),
    }
)
"""A row per call of a loop that launches or waits; `first` is the one that begins its loop."""


def read_loops(acting: pl.DataFrame, reads: pl.Series) -> pl.DataFrame:
    """The loops (`READ_LOOPS`) that these reads stand in.

    Args:
        acting: `ACTING_CALLS`.
        reads: calls of one place in the program that wait for the GPU.
    """
    calls = _with_stretches(acting, reads)
    ends = calls.group_by("stretch", maintain_order=True).agg(
        pl.col("read", "thread_no").last(),
        pl.col("kernels").sum(),
        stops=pl.col("stops").any() | (pl.col("thread_no").n_unique() > 1),
        calls=pl.len(),
    )
    same_thread = pl.col("thread_no") == pl.col("thread_no").shift(1)
    follows = same_thread & ~pl.col("stops") & (pl.col("kernels") <= MOST_KERNELS)
    ends = ends.filter("read").with_columns(follows.fill_null(value=False).alias("follows"))
    loop = (~pl.col("follows")).cum_sum().alias("loop")
    fewest = pl.col("calls").filter("follows").min().over("loop").alias("fewest")
    ends = ends.with_columns(loop).with_columns(fewest)
    ends = ends.filter(pl.len().over("loop") >= FEWEST_READS)
    inside = calls.join(ends[["stretch", "loop", "follows", "fewest"]], on="stretch")
    begun = (pl.col("left") < pl.col("fewest")) & ~pl.col("stopped_later")
    inside = inside.filter(pl.col("follows") | begun)
    first = pl.col("call") == pl.col("call").first().over("loop")
    return inside.with_columns(first.alias("first")).select(READ_LOOPS.names())


def acting_calls(events: Events, classes: Rules = ()) -> pl.DataFrame:
    """`ACTING_CALLS` of a trace.

    Args:
        events: the trace's.
        classes: further kernel classes.
    """
    outer, holder = outermost(events)
    compute = class_of(
        pl.col("name").cast(pl.String), pl.col("short_name").cast(pl.String), classes
    )
    ops = events.ops.filter(pl.col("call").is_not_null())
    names = ops[["name", "short_name"]].unique()
    works = names.with_columns(compute.is_in(WORK).alias("works"))
    is_kernel = pl.col("kind") == "kernel"
    launcher = outer[holder[ops["call"]]].alias("call")
    launched = (
        ops.select("name", "short_name", "kind", "part", "start_ns", "end_ns", launcher)
        .join(works, on=["name", "short_name"], how="left")
        .group_by("call")
        .agg(
            is_kernel.sum().alias("kernels"),
            (pl.col("end_ns") - pl.col("start_ns")).filter(is_kernel).sum().alias("kernel_ns"),
            works=((is_kernel & pl.col("works")) | _is_other_work()).any(),
        )
    )
    calls = events.calls[["call", "thread_no", "class"]][outer]
    calls = calls.join(launched, on="call", how="left", maintain_order="left")
    acts = (pl.col("class") != "api") | pl.col("kernels").is_not_null()
    return calls.filter(acts).select(
        "call",
        "thread_no",
        pl.col("class").is_in(["sync", "alloc", "blocking_copy"]).alias("waits"),
        pl.col("kernels", "kernel_ns").fill_null(0),
        pl.col("works").fill_null(value=False),
    )


def _is_other_work() -> pl.Expr:
    """Whether an operation is work that its name does not tell."""
    return (pl.col("part") == "comm") | (pl.col("kind") == "graph")


def _with_stretches(acting: pl.DataFrame, reads: pl.Series) -> pl.DataFrame:
    """The calls with the `stretch` of each: it ends with a read. `stops` is whether a call cannot
    be in a loop, `left` how many calls of its stretch are behind it, `stopped_later` whether it or
    one of those stops, or is of another thread than the last."""
    read = pl.col("call").is_in(reads.implode())
    stops = (pl.col("waits") & ~read) | pl.col("works")
    calls = acting.with_columns(read.alias("read"), stops.alias("stops"))
    stretch = (pl.col("read").cum_sum() - pl.col("read")).alias("stretch")
    calls = calls.with_columns(stretch)
    left = (pl.len() - 1 - pl.int_range(pl.len())).over("stretch")
    stops = pl.col("stops") | (pl.col("thread_no") != pl.col("thread_no").last().over("stretch"))
    later = stops.cum_max(reverse=True).over("stretch")
    return calls.with_columns(left.alias("left"), later.alias("stopped_later"))
