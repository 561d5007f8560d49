"""What GPU memory is taken by when a process has most of it (spec §26.11)."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.columns import percent
from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.kept_memory import phases_around
from nsysflow.analysis.tables.memory import (
    Instances,
    MemoryUse,
    allocation_places,
    memory_uses,
    open_instances,
    peak_of_all,
)
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

PEAK_MEMORY: Final = TableSchema(
    """One row per process, device and place of memory that was allocated when the process had most
    in all that is selected. What was allocated before the recording began has no place, unless the
    report says where. None where only CUDA says how much there is.""",
    [
        *shared("report process device"),
        Column(
            "phase",
            pl.String(),
            "the innermost phase that was open when it was allocated, whatever the thread; empty"
            " outside all ranges",
        ),
        *shared("source via"),
        Column("operator", pl.String(), "the outermost operator that ran then, e.g. `aten::relu`"),
        Column(
            "allocations", pl.Int64(), "how many allocations; empty for those before the recording"
        ),
        Column("bytes", pl.Int64(), "how much, all together"),
        Column("share_pct", pl.Float64(), "of all that was allocated then"),
    ],
)

_PLACE: Final = ("phase", "source", "via", "operator")


def peak_memory_table(view: View) -> pl.DataFrame:
    """The PEAK_MEMORY table, the GPUs and processes in order, most memory first."""
    every = memory_uses(view.timeline)
    uses = [use for use in every if use.said_by == "allocator" and use.allocated]
    if not uses:
        return PEAK_MEMORY.to_frame()
    instances = open_instances(view.timeline)
    rows = pl.concat([_allocated(view, use, instances) for use in uses])
    places = allocation_places(view, rows["change"].drop_nulls())
    pair = ["device", "process"]
    return (
        rows.join(places, on="change", how="left")
        .group_by(*pair, *_PLACE)
        .agg(
            pl.when(pl.col("change").count() > 0)
            .then(pl.col("change").count())
            .cast(pl.Int64)
            .alias("allocations"),
            pl.col("bytes").sum(),
        )
        .with_columns(percent(pl.col("bytes"), pl.col("bytes").sum().over(pair)).alias("share_pct"))
        .sort(*pair, -pl.col("bytes"), *_PLACE)
        .with_columns(os_pid(pl.col("process")).alias("process"))
    )


def _allocated(view: View, use: MemoryUse, instances: Instances) -> pl.DataFrame:
    """What a process has allocated at its peak: `process`, `device`, `change` (none for what was
    there before the recording), `bytes` and `phase`."""
    peak_at = peak_of_all(view, use)
    if peak_at is None:
        return _ROWS.to_frame()
    until = use.levels.head(peak_at + 1)["change"].drop_nulls()
    changes = view.trace.memory[until].select(until, "address", "bytes", start_ns="time_ns")
    last = changes.drop_nulls("address").unique("address", keep="last", maintain_order=True)
    there = last.filter(pl.col("bytes") > 0)
    before = use.levels["bytes"][peak_at] - there["bytes"].sum()
    mine = instances.filter(pl.col("process") == use.process)
    known = there.join(phases_around(view, mine, there), on="change", how="left")
    older = pl.DataFrame({"bytes": [before] if before > 0 else []}, {"bytes": pl.Int64()})
    return (
        pl.concat([known.select("change", "bytes", "phase"), older], how="diagonal")
        .with_columns(
            pl.lit(use.process, pl.Int64).alias("process"),
            pl.lit(use.device, pl.Int32).alias("device"),
            pl.col("phase").fill_null(""),
        )
        .match_to_schema(_ROWS)
    )


_ROWS: Final = pl.Schema(
    {
        "change": pl.UInt32(),
        "bytes": pl.Int64(),
        "phase": pl.String(),
        "process": pl.Int64(),
        "device": pl.Int32(),
    }
)

TABLES: Final = (
    Table(
        name="peak_memory",
        schema=PEAK_MEMORY,
        make=peak_memory_table,
        csv="with rows",
        json_key="peak_memory",
        page_rows=4,
        full_rows=20,
        ranked_by="bytes",
        filled_by="record with nsysflow profile --memory, or torch.profiler's profile_memory=True;"
        " or analyse a memory snapshot of PyTorch",
        shown="bytes share_pct phase source operator allocations via device process report",
    ),
)
