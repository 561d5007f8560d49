"""The source line of each CUDA call, if Python backtraces were sampled (spec §11)."""

import polars as pl

from nsysflow.analysis.frames.intervals import Axis
from nsysflow.analysis.frames.source_files import is_own, shown_files
from nsysflow.analysis.trace import Trace


def with_sources(
    calls: pl.DataFrame, threads: pl.DataFrame, axis: Axis, trace: Trace
) -> pl.DataFrame:
    """`calls` plus `source`, e.g. `train.py:42 in step`: the innermost frame of the program itself.

    Null if there is no backtrace, or no such frame in it. The profiler records one backtrace for
    a runtime call and the driver call inside it. A call without one takes that of the call around
    it, or else that of its correlation id.

    Args:
        calls: sorted by thread and start, longest first, with `thread_no` and `correlation`.
        threads: `thread` and its `thread_no`.
        axis: the axis of the threads.
        trace: for its backtraces.
    """
    if trace.backtraces.is_empty():
        return calls.with_columns(pl.lit(None, pl.Categorical).alias("source"))
    sampled = _with_stacks(calls, trace.backtraces.join(threads, on="thread"), axis)
    stack = _of_correlation(_of_call_around(sampled))
    sources = stack_sources(trace.frames)
    source = stack.replace_strict(
        sources["stack"], sources["source"], default=None, return_dtype=pl.Categorical
    )
    return calls.with_columns(source.alias("source"))


def _written_by_a_library(own: pl.Series) -> pl.Expr:
    """Whether a frame of sorted stacks is `<string>` code that a library generated.

    Code that a person typed has no caller, or one that was typed too. Code that a library generates
    is called by a file that is not `own`.
    """
    file, stack = pl.col("file"), pl.col("stack")
    called = (stack.shift(-1) == stack).fill_null(value=False)
    by_own = file.shift(-1).is_in(own.implode()).fill_null(value=False)
    return (file == "<string>").fill_null(value=False) & called & ~by_own


def stack_sources(frames: pl.DataFrame) -> pl.DataFrame:
    """`stack` and `source` of the stacks (`schema.FRAMES`) that contain the program's own code."""
    files = frames["file"].drop_nulls().unique()
    own = files.filter(files.map_elements(is_own, return_dtype=pl.Boolean))
    names = pl.DataFrame(list(shown_files(own).items()), schema=["file", "shown"], orient="row")
    return (
        frames.sort("stack", "depth")
        .filter(~_written_by_a_library(own))
        .join(names.cast(pl.String), on="file")
        .sort("stack", "depth")
        .unique("stack", keep="first", maintain_order=True)
        .select(
            "stack",
            pl.format("{}:{} in {}", "shown", "line", pl.col("function").fill_null("(nameless)"))
            .cast(pl.Categorical)
            .alias("source"),
        )
    )


def _with_stacks(calls: pl.DataFrame, backtraces: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    """Per call `thread_no`, `correlation`, `start` and `end` on the axis, and `stack` of a
    backtrace taken when it started."""
    key, thread = ["thread_no", "start_ns"], pl.col("thread_no")
    at_start = backtraces.select(*key, "stack").unique(key, keep="first", maintain_order=True)
    return calls.join(at_start, on=key, how="left", maintain_order="left").select(
        "thread_no",
        "correlation",
        axis.at(thread, pl.col("start_ns")).alias("start"),
        axis.at(thread, pl.col("end_ns")).alias("end"),
        "stack",
    )


def _of_call_around(calls: pl.DataFrame) -> pl.DataFrame:
    """`calls`; those without a stack take it from the first call around them that has one."""
    known = calls.drop_nulls("stack")
    # the first call that reaches an end is where the running maximum reaches it
    first = known["end"].cum_max().search_sorted(calls["end"], side="left")
    first = first.set(first >= len(known), None)
    holds = known["start"].gather(first) <= calls["start"]
    stack = pl.when(holds).then(known["stack"].gather(first))
    return calls.with_columns(pl.coalesce("stack", stack))


def _of_correlation(calls: pl.DataFrame) -> pl.Series:
    """The stack of each call; those without one take that of their thread and correlation id."""
    key = ["thread_no", "correlation"]
    known = calls.drop_nulls(["stack", "correlation"]).unique(
        key, keep="first", maintain_order=True
    )
    stack = pl.col("stack").alias("same")
    found = calls.join(known.select(*key, stack), on=key, how="left", maintain_order="left")
    return found.select(pl.coalesce("stack", "same").alias("stack")).to_series()
