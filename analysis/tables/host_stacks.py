"""What the host was running while the GPU waited for it: by function, and stack by stack
(spec §17)."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.columns import percent
from nsysflow.analysis.frames.source_files import shown_frames
from nsysflow.analysis.schema import os_pid, os_tid
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared
from nsysflow.base.names import NAMELESS

HOST_STACKS: Final = TableSchema(
    """One row per thread, phase, cause, function and line that the host was at in the idle time of
    the causes `host` and `launch`, most idle time first. `function` is the innermost function or
    operator, `(not sampled)` where no sample is near. Where a report has samples, or operators of
    torch.profiler, the rows sum to the idle time of both causes, else there are none.""",
    [
        *shared("report process"),
        Column("thread", pl.Int64(), "the thread that ran it (tid)"),
        Column(
            "phase",
            pl.String(),
            "where the host was: the NVTX ranges around it, outermost first, joined by `/`; empty "
            "outside all ranges",
        ),
        *shared("cause"),
        Column(
            "function",
            pl.String(),
            "the innermost Python function or operator that was running; `(not sampled)` where no "
            "sample is near",
        ),
        Column(
            "source",
            pl.String(),
            "the innermost line of your program in that stack, as `train.py:42 in step`; empty if "
            "that stack has no line of yours",
        ),
        Column(
            "via",
            pl.String(),
            "where `source` is only the call into a framework, the innermost line of that "
            "framework",
        ),
        Column("idle_ns", pl.Int64(), "idle GPU time in which the host was there"),
        Column(
            "samples",
            pl.Int64(),
            "how many samples this rests on; empty where the profiler recorded every function's "
            "time",
        ),
        Column(
            "share_pct",
            pl.Float64(),
            "the share of all idle time with the causes `host` and `launch`",
        ),
    ],
)

IDLE_STACKS: Final = TableSchema(
    """One row per phase, cause and stack of the idle time in `host_stacks`, most idle time first.
    `stack` has its frames, outermost first, each as `function (file:line)`, an operator as its
    name; it is `(not sampled)` where no sample is near.""",
    [
        *shared("report"),
        Column(
            "phase",
            pl.String(),
            "where the host was: the NVTX ranges around it, outermost first, joined by `/`; empty "
            "outside all ranges",
        ),
        *shared("cause"),
        Column("stack", pl.List(pl.String), "the functions that were running, outermost first"),
        Column("idle_ns", pl.Int64(), "idle GPU time in which the host ran this stack"),
        Column(
            "samples",
            pl.Int64(),
            "how many samples this rests on; empty where the profiler recorded every function's "
            "time",
        ),
    ],
)

NOT_SAMPLED: Final = "(not sampled)"
"""The function, and the only frame of the stack, of time that no sample stands for."""


def host_stack_table(view: View) -> pl.DataFrame:
    """The HOST_STACKS table."""
    if view.host_stacks is None:
        return HOST_STACKS.to_frame()
    frames = view.trace.frames
    functions = frames.filter(pl.col("depth") == 0).select("stack", _function())
    rows = (
        view.host_stacks.join(functions, on="stack", how="left")
        .join(view.events.stack_sources, on="stack", how="left")
        .join(view.events.threads[["thread_no", "thread", "process"]], on="thread_no")
        .with_columns(
            os_pid(pl.col("process")),
            os_tid(pl.col("thread")),
            pl.col("function").fill_null(NOT_SAMPLED),
            pl.col("source", "via").cast(pl.String),
        )
    )
    key = ["process", "thread", "phase", "cause", "function", "source", "via"]
    summed = rows.group_by(key).agg(pl.col("idle_ns", "samples").sum())
    share = percent(pl.col("idle_ns"), pl.col("idle_ns").sum())
    return _as_counted(view, summed.with_columns(share.alias("share_pct"))).sort(
        -pl.col("idle_ns"), *key
    )


def idle_stack_table(view: View) -> pl.DataFrame:
    """The IDLE_STACKS table."""
    if view.host_stacks is None:
        return IDLE_STACKS.to_frame()
    written = _written_stacks(view.trace.frames, view.host_stacks["stack"])
    rows = view.host_stacks.join(written, on="stack", how="left")
    key = ["phase", "cause", "frames"]
    summed = rows.group_by(key).agg(pl.col("idle_ns", "samples").sum())
    return (
        _as_counted(view, summed)
        .sort(-pl.col("idle_ns"), *key)
        .with_columns(pl.col("frames").fill_null(NOT_SAMPLED).str.split("\0").alias("stack"))
    )


def _as_counted(view: View, rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` without `samples` where the time of every function was recorded."""
    if view.trace.running.is_empty():
        return rows
    return rows.with_columns(pl.lit(None, pl.Int64).alias("samples"))


def _function() -> pl.Expr:
    return pl.col("function").fill_null(NAMELESS)


def _written_stacks(frames: pl.DataFrame, wanted: pl.Series) -> pl.DataFrame:
    """`stack`, and `frames`: `function (file:line)` of each, outermost first, joined by NUL."""
    names = shown_frames(frames["file"].drop_nulls().unique())
    shown = pl.DataFrame(list(names.items()), schema=["file", "shown"], orient="row")
    place = pl.format(" ({}:{})", "shown", "line").fill_null("")
    return (
        frames.join(wanted.unique().to_frame(), on="stack", how="semi")
        .join(shown.cast(pl.String), on="file", how="left")
        .sort("stack", "depth", descending=[False, True])
        .group_by("stack", maintain_order=True)
        .agg(pl.concat_str(_function(), place).str.join("\0").alias("frames"))
    )


TABLES: Final = (
    Table(
        name="host_stacks",
        schema=HOST_STACKS,
        make=host_stack_table,
        csv="with rows",
        json_key="host_stacks",
        page_rows=3,
        full_rows=20,
        by_stack="idle_stacks",
        filled_by="record what Python runs with --sample-python 1000",
        shown="idle_ns function source via phase cause share_pct samples thread process report",
    ),
    Table(
        name="idle_stacks",
        schema=IDLE_STACKS,
        make=idle_stack_table,
        csv="never",
        json_key=None,
        filled_by="record what Python runs with --sample-python 1000",
    ),
)
