"""Who holds Python's lock (GIL) while the thread that launches waits for it (spec §28)."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.columns import percent
from nsysflow.analysis.idle.gil import LockWaits
from nsysflow.analysis.schema import os_pid, os_tid
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

GIL: Final = TableSchema(
    """One row per thread that launches, phase, and thread that holds Python's lock (GIL) while the
    first one waits for it, most time first. It is part of the idle time of the causes `host` and
    `launch`. `profile --gil` records it. Without that it is estimated from the CPU time of the
    threads and from samples: a thread waits for the lock no longer than it sleeps, and no longer
    than other threads of Python run. The holder is then the thread that ran most.""",
    [
        *shared("report process"),
        Column("thread", pl.Int64(), "the thread that waits (tid)"),
        Column(
            "phase",
            pl.String(),
            "where the host was: the NVTX ranges around it, outermost first, joined by `/`; empty "
            "outside all ranges",
        ),
        Column("holder", pl.Int64(), "the thread that holds the lock meanwhile (tid)"),
        Column("holder_name", pl.String(), "that thread's name; empty where the report has none"),
        Column(
            "function",
            pl.String(),
            "the innermost Python function that the holder ran for most of that time; empty where "
            "no samples were recorded",
        ),
        Column(
            "source",
            pl.String(),
            "the innermost line of your program in the holder's stack then, as `feed.py:88 in "
            "decode`; empty if it has none",
        ),
        Column("gil_ns", pl.Int64(), "idle GPU time in which the thread waits for the lock"),
        Column("estimated", pl.Boolean(), "whether that is an estimate, and nobody recorded it"),
        Column(
            "share_pct",
            pl.Float64(),
            "the share of all idle time with the causes `host` and `launch`",
        ),
    ],
)

_KEY: Final = ["process", "thread", "phase", "holder"]


def gil_table(view: View) -> pl.DataFrame:
    """The GIL table."""
    lock = view.timeline.lock_waits
    if lock is None or view.gil_instants is None:
        return GIL.to_frame()
    instants, threads = view.gil_instants, view.events.threads
    phase = view.attribution.paths["joined"].cast(pl.String)[instants["path"]].fill_null("")
    held = (
        instants.with_columns(phase.alias("phase"))
        .rename({"stack": "holder_no"})
        .drop_nulls("holder_no")
        .group_by("thread_no", "phase", "holder_no")
        .agg(pl.col("ns").sum().alias("gil_ns"))
    )
    ran = _most_run(view.timeline, lock)
    waiting, holding = (threads["thread"][held[name]] for name in ("thread_no", "holder_no"))
    rows = held.with_columns(
        os_pid(pl.lit(threads["process"][held["thread_no"]])).alias("process"),
        pl.lit(lock.estimated).alias("estimated"),
        os_tid(pl.lit(waiting)).alias("thread"),
        os_tid(pl.lit(holding)).alias("holder"),
        threads["name"][held["holder_no"]].alias("holder_name"),
        percent(pl.col("gil_ns"), pl.lit(int(instants["ns"].sum()))).alias("share_pct"),
    )
    return rows.join(ran, on=["thread_no", "holder_no"], how="left").sort(-pl.col("gil_ns"), *_KEY)


def _most_run(timeline: Timeline, lock: LockWaits) -> pl.DataFrame:
    """What each holder ran for most of the time in which a thread waits for it: `thread_no`,
    `holder_no`, `function`, `source`."""
    frames = timeline.trace.frames
    names = frames.filter(pl.col("depth") == 0).select("stack", pl.col("function").fill_null(""))
    ran = lock.held_by(timeline.events)
    code = ["function", "source"]
    return (
        ran.join(names, on="stack", how="left")
        .join(timeline.events.stack_sources, on="stack", how="left")
        .with_columns(pl.col("source").cast(pl.String))
        .group_by("thread_no", "holder_no", *code)
        .agg(pl.col("ns").sum())
        .sort(-pl.col("ns"), *code)
        .unique(["thread_no", "holder_no"], keep="first", maintain_order=True)
        .select("thread_no", "holder_no", *code)
    )


TABLES: Final = (
    Table(
        name="gil",
        schema=GIL,
        make=gil_table,
        csv="with rows",
        json_key="gil",
        page_rows=3,
        full_rows=10,
        filled_by="no wait for Python's lock was seen; profile --gil records them",
        shown="gil_ns share_pct phase holder_name function source holder thread process report",
    ),
)
