"""Memory that stays from step to step: where it is allocated (spec §26.10)."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.columns import greatest
from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.memory import (
    Instances,
    MemoryUse,
    allocation_places,
    beginning_in,
    memory_uses,
    open_instances,
)
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

KEPT_MEMORY: Final = TableSchema(
    """One row per process, device and place of memory that was allocated in a step, and not freed
    before the end of the next one. Where memory grows from step to step, this is what it grows by;
    none where the addresses of memory were not recorded.""",
    [
        *shared("report process device"),
        Column(
            "phase",
            pl.String(),
            "the innermost phase that was open then, whatever the thread; empty outside all ranges",
        ),
        *shared("source via"),
        Column("operator", pl.String(), "the outermost operator that ran then, e.g. `aten::cat`"),
        Column("steps", pl.Int64(), "in how many steps"),
        Column("of_steps", pl.Int64(), "of how many steps that another one follows"),
        Column("allocations", pl.Int64(), "how many allocations"),
        Column("bytes", pl.Int64(), "how much, all together"),
    ],
)

_PLACE: Final = ("phase", "source", "via", "operator")


def kept_memory_table(view: View) -> pl.DataFrame:
    """The KEPT_MEMORY table, the GPUs and processes in order, most memory first."""
    uses = [*memory_uses(view.timeline)]
    if not uses:
        return KEPT_MEMORY.to_frame()
    instances = open_instances(view.timeline)
    rows = pl.concat([_kept(view, use, instances) for use in uses])
    places = allocation_places(view, rows["change"])
    key = ["device", "process", "of_steps", *_PLACE]
    return (
        rows.join(places, on="change", how="left")
        .group_by(key)
        .agg(
            pl.col("step").n_unique().cast(pl.Int64).alias("steps"),
            pl.len().cast(pl.Int64).alias("allocations"),
            pl.col("bytes").sum(),
        )
        .sort("device", "process", -pl.col("bytes"), *_PLACE)
        .with_columns(os_pid(pl.col("process")).alias("process"))
    )


def _kept(view: View, use: MemoryUse, instances: Instances) -> pl.DataFrame:
    """What of a process's memory was kept: `process`, `device`, `change`, `step`, `of_steps`,
    `bytes` and `phase`."""
    steps = use.steps(view).with_columns(
        pl.when(pl.col("step").shift(-1) == pl.col("step") + 1)
        .then(pl.col("end_ns").shift(-1))
        .alias("freed_by_ns")
    )
    followed = steps.drop_nulls("freed_by_ns")
    if use.said_by == "allocator":  # its history may end before the recording does
        followed = followed.filter(pl.col("end_ns") <= greatest(use.levels["time_ns"]))
    number = use.levels["change"].drop_nulls()
    next_ns = pl.col("time_ns").shift(-1).over("address")
    changes = view.trace.memory[number].select(
        number, "address", "bytes", next_ns.alias("next_ns"), start_ns="time_ns"
    )
    made = changes.drop_nulls("address").filter(pl.col("bytes") > 0)
    placed = beginning_in(followed, made)
    stays = pl.col("next_ns").is_null() | (pl.col("next_ns") >= pl.col("freed_by_ns"))
    kept = placed.filter(stays)
    mine = instances.filter(pl.col("process") == use.process)
    return (
        kept.select(
            pl.lit(use.process, pl.Int64).alias("process"),
            pl.lit(use.device, pl.Int32).alias("device"),
            *("change", "step", "bytes"),
            pl.lit(len(followed), pl.Int64).alias("of_steps"),
        )
        .join(phases_around(view, mine, kept), on="change", how="left")
        .with_columns(pl.col("phase").fill_null(""))
    )


def phases_around(view: View, instances: Instances, changes: pl.DataFrame) -> pl.DataFrame:
    """`change` and `phase` of rows with `change` and `start_ns`: the deepest path with an instance
    that is open then; of several, the last one in tree order."""
    paths = view.attribution.paths.select("path", "depth", "key", phase="joined")
    around = changes.select("change", at_ns="start_ns").join_where(
        instances.join(paths, on="path"),
        pl.col("start_ns") <= pl.col("at_ns"),
        pl.col("end_ns") > pl.col("at_ns"),
    )
    deepest = around.sort("depth", "key").unique("change", keep="last", maintain_order=True)
    return deepest.select("change", "phase")


TABLES: Final = (
    Table(
        name="kept_memory",
        schema=KEPT_MEMORY,
        make=kept_memory_table,
        csv="with rows",
        json_key="kept_memory",
        page_rows=3,
        full_rows=20,
        ranked_by="bytes",
        filled_by="record several steps with nsysflow profile --memory; it stays empty"
        " if each step frees what the one before allocated",
        shown="bytes phase source operator steps of_steps allocations via device process report",
    ),
)
