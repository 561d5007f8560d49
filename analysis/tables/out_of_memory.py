"""Allocations that failed, and what there was then (spec §26.13)."""

from typing import Final

import polars as pl

from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.kept_memory import phases_around
from nsysflow.analysis.tables.memory import memory_uses, open_instances, places_of_stacks
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

OUT_OF_MEMORY: Final = TableSchema(
    """One row per allocation of GPU memory that failed, wherever in the report. PyTorch has then
    already given back what it had reserved and nothing used.""",
    [
        *shared("report process device"),
        Column("time_ns", pl.Int64(), "when it failed"),
        Column("asked_bytes", pl.Int64(), "how much was asked for"),
        Column("allocated_bytes", pl.Int64(), "how much the process had allocated then"),
        Column("reserved_bytes", pl.Int64(), "how much it had reserved then"),
        Column(
            "free_bytes",
            pl.Int64(),
            "how much of the GPU's memory nobody had then; empty where that is not known",
        ),
        Column(
            "phase",
            pl.String(),
            "the innermost phase that was open then, whatever the thread; empty outside all ranges",
        ),
        *shared("source via"),
        Column("operator", pl.String(), "the outermost operator that asked, e.g. `aten::relu`"),
    ],
)


def out_of_memory_table(view: View) -> pl.DataFrame:
    """The OUT_OF_MEMORY table, in order of time."""
    failed = view.trace.out_of_memory.with_row_index("change").sort("time_ns", "change")
    if failed.is_empty():
        return OUT_OF_MEMORY.to_frame()
    there = [
        use.levels.select(
            pl.lit(use.process, pl.Int64).alias("process"),
            pl.lit(use.device, pl.Int32).alias("device"),
            pl.col("time_ns").alias("since_ns"),
            (pl.col("bytes") if use.allocated else pl.lit(None, pl.Int64)).alias("allocated_bytes"),
            "reserved_bytes",
        )
        for use in memory_uses(view.timeline)
    ]
    levels = pl.concat([_LEVELS.to_frame(), *there]).sort("since_ns", maintain_order=True)
    instances, started = open_instances(view.timeline), failed.rename({"time_ns": "start_ns"})
    phases = [
        phases_around(view, *(rows.filter(process=process) for rows in (instances, started)))
        for process in failed["process"].unique().drop_nulls()
    ]
    return (
        failed.rename({"bytes": "asked_bytes"})
        .join_asof(
            levels,
            left_on="time_ns",
            right_on="since_ns",
            by=["process", "device"],
            check_sortedness=False,
        )
        .join(
            pl.concat([_PHASES.to_frame(), *phases]), on="change", how="left", maintain_order="left"
        )
        .join(places_of_stacks(view, failed), on="change", how="left", maintain_order="left")
        .with_columns(pl.col("phase").fill_null(""), os_pid(pl.col("process")).alias("process"))
    )


_LEVELS: Final = pl.Schema(
    {
        "process": pl.Int64(),
        "device": pl.Int32(),
        "since_ns": pl.Int64(),
        "allocated_bytes": pl.Int64(),
        "reserved_bytes": pl.Int64(),
    }
)

_PHASES: Final = pl.Schema({"change": pl.UInt32(), "phase": pl.String()})

TABLES: Final = (
    Table(
        name="out_of_memory",
        schema=OUT_OF_MEMORY,
        make=out_of_memory_table,
        csv="with rows",
        json_key="out_of_memory",
        page_rows=2,
        full_rows=10,
        filled_by="record it with nsysflow profile --memory, or analyse a memory snapshot that was"
        " dumped after the failure",
        shown="asked_bytes allocated_bytes reserved_bytes free_bytes phase source operator time_ns"
        " via device process report",
    ),
)
