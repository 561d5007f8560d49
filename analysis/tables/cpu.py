"""How long threads waited for a CPU, and who used the CPUs (spec §29)."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.columns import percent
from nsysflow.analysis.idle.descheduled import launching, stretches
from nsysflow.analysis.schema import os_pid, os_tid, process_of
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.gaps import descheduled_by_thread
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

CPU: Final = TableSchema(
    """One row per launching thread of which the kernel's counters were read more than once.
    `descheduled_ns` is of the selection, all else of the time between the first reading and the
    last, whatever is selected. What follows `cores` is of the thread's process. A CPU is what
    the kernel schedules on: a core, or a hardware thread of it.""",
    [
        *shared("report process"),
        Column("thread", pl.Int64(), "the thread's id (tid)"),
        *shared("start_ns end_ns"),
        Column("ran_ns", pl.Int64(), "how long it ran on a CPU"),
        Column("waited_ns", pl.Int64(), "how long it could have run, and had no CPU"),
        Column("waited_pct", pl.Float64(), "the share of the time that is `waited_ns`"),
        Column(
            "descheduled_ns",
            pl.Int64(),
            "how long GPUs were idle while this thread, in host code, waited for a CPU: the sum of "
            "that column of gaps",
        ),
        Column("cores", pl.Int64(), "how many CPUs the process may use"),
        Column("used_cores", pl.Float64(), "how many its threads used, in the mean"),
        Column(
            "started_cores",
            pl.Float64(),
            "how many the processes used that it started, such as workers of a DataLoader",
        ),
        Column(
            "others_cores",
            pl.Float64(),
            "how many of these CPUs others used: processes that it did not start, such as other "
            "ranks, and the system",
        ),
        Column(
            "limit_cores", pl.Float64(), "the limit of its control group: how many CPUs it may use"
        ),
        Column(
            "throttled_ns",
            pl.Int64(),
            "how long that limit held its control group up, summed over CPUs",
        ),
    ],
)


def cpu_table(view: View) -> pl.DataFrame:
    """The CPU table."""
    launches = view.events.threads["thread"][launching(view.events)]
    known = stretches(view.trace).filter(pl.col("thread").is_in(launches.implode()))
    if known.is_empty():
        return CPU.to_frame()
    length = pl.col("end_ns").cast(pl.Int128) - pl.col("start_ns")
    waited = pl.col("waited_ns").cast(pl.Int128).sum()
    threads = known.group_by("thread").agg(
        pl.col("start_ns").min(),
        pl.col("end_ns").max(),
        pl.col("ran_ns").cast(pl.Int128).sum(),
        waited,
        percent(waited, length.sum()).alias("waited_pct"),
    )
    process = process_of(pl.col("thread")).alias("process")
    return (
        threads.with_columns(pl.col("ran_ns", "waited_ns").cast(pl.Int64, strict=False), process)
        .join(_descheduled(view), on="thread", how="left")
        .join(_processes(view), on="process", how="left")
        .with_columns(os_pid(pl.col("process")).alias("process"), os_tid(pl.col("thread")))
        .sort("process", "thread")
    )


def _descheduled(view: View) -> pl.DataFrame:
    """`thread`, `descheduled_ns`: of the selected gaps."""
    rows = descheduled_by_thread(view, view.gaps).join(view.events.threads, on="thread_no")
    return rows.group_by("thread").agg(pl.col("descheduled_ns").sum())


def _processes(view: View) -> pl.DataFrame:
    """Per process what is known of its CPUs: between its first reading and its last, what it and
    others used of them; and what it may use, by the last."""
    columns = pl.all().exclude("process")
    ordered = view.trace.process_cpu.sort(pl.all().exclude("process"), nulls_last=True)
    both = ordered.group_by("process").agg(columns.first().name.suffix("_before"), columns.last())
    names = ("time_ns", "used_ns", "started_ns", "busy_ns", "throttled_ns")
    grown = {name: pl.col(name).cast(pl.Int128) - pl.col(f"{name}_before") for name in names}
    wall = grown["time_ns"]
    others = grown["busy_ns"] - grown["used_ns"] - grown["started_ns"]
    return both.select(
        "process",
        "cores",
        _share(grown["used_ns"], wall).alias("used_cores"),
        _share(grown["started_ns"], wall).alias("started_cores"),
        _share(others.clip(lower_bound=0), wall).alias("others_cores"),
        (pl.col("limit_millicores") / 1000).alias("limit_cores"),
        pl.when(grown["throttled_ns"] >= 0)
        .then(grown["throttled_ns"])
        .cast(pl.Int64)
        .alias("throttled_ns"),
    )


def _share(ns: pl.Expr, wall: pl.Expr) -> pl.Expr:
    """How many CPUs that is in the mean; null where no time passed, and where a counter fell."""
    return pl.when(wall > 0, ns >= 0).then(ns.cast(pl.Float64) / wall.cast(pl.Float64))


TABLES: Final = (
    Table(
        name="cpu",
        schema=CPU,
        make=cpu_table,
        csv="with rows",
        json_key="cpu",
        page_rows=3,
        full_rows=10,
        filled_by="record with nsysflow profile, which reads the kernel's counters as steps begin",
        shown=(
            "process thread waited_ns waited_pct descheduled_ns cores used_cores started_cores "
            "others_cores limit_cores throttled_ns ran_ns report"
        ),
    ),
)
