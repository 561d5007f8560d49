"""Kernel time by the line of the program that launched it (spec §17.13, §17.14)."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.columns import percent
from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

CODE: Final = TableSchema(
    """One row per process, device and line of the program that launched kernels, most time first.
    What autograd's thread launches belongs to the line whose gradients it computes, where that is
    known, else to the line that waits for it, in rows of their own. Where a report says which code
    launched, the rows sum to all kernel time, else there are none.""",
    [
        *shared("report process device"),
        Column(
            "source",
            pl.String(),
            "the innermost line of your program that launched them, as `model.py:42 in forward`; "
            "empty where that is not known",
        ),
        *shared("via"),
        Column(
            "waits",
            pl.Boolean(),
            "whether another thread launched them while the line waited for it, as "
            "`loss.backward()` does",
        ),
        Column(
            "backward",
            pl.Boolean(),
            "whether they compute gradients of what the line did, as torch.profiler ties them",
        ),
        *shared("kernels total_ns"),
        Column("share_pct", pl.Float64(), "the share of the GPU's kernel time"),
        Column("kernel", pl.String(), "the kernel that takes most of this time"),
        Column("kernel_pct", pl.Float64(), "its share of this time"),
    ],
)


def code_table(view: View) -> pl.DataFrame:
    """The CODE table."""
    stacks = view.timeline.launch_stacks
    if stacks is None:
        return CODE.to_frame()
    kernels = view.ops.lazy().filter(pl.col("kind") == "kernel")
    ns = (pl.col("end_ns") - pl.col("start_ns")).alias("ns")
    launched = kernels.select("process", "device", "call", "short_name", ns).collect()
    backward = pl.col("backward").fill_null(value=False)
    waits = pl.col("stack").is_not_null() & pl.col("lent") & ~backward
    known = stacks[launched["call"]].select("stack", waits=waits, backward=backward)
    launched = launched.drop("call").hstack(known)
    summed = launched.group_by(pl.exclude("ns")).agg(
        pl.len().alias("kernels"), pl.col("ns").sum().alias("total_ns")
    )
    key = ["process", "device", "source", "via", "waits", "backward"]
    named = (
        summed.join(view.events.stack_sources, on="stack", how="left")
        .group_by(*key, "short_name")
        .agg(pl.col("kernels", "total_ns").sum())
        .with_columns(pl.col("source", "via", "short_name").cast(pl.String))
        .sort("total_ns", "short_name", descending=[True, False])
    )
    rows = named.group_by(*key, maintain_order=True).agg(
        pl.col("short_name").first().alias("kernel"),
        pl.col("total_ns").first().alias("most_ns"),
        pl.col("kernels").sum().cast(pl.Int64),
        pl.col("total_ns").sum(),
    )
    whole_ns = pl.col("total_ns").sum().over("device")
    return rows.with_columns(
        os_pid(pl.col("process")),
        percent(pl.col("total_ns"), whole_ns).alias("share_pct"),
        percent(pl.col("most_ns"), pl.col("total_ns")).alias("kernel_pct"),
    ).sort(-pl.col("total_ns"), *key, nulls_last=True)


TABLES: Final = (
    Table(
        name="code",
        schema=CODE,
        make=code_table,
        csv="with rows",
        json_key="code",
        page_rows=3,
        full_rows=20,
        filled_by="record what Python runs with --sample-python 1000",
        shown=(
            "total_ns source via waits backward share_pct kernels kernel kernel_pct device process"
            " report"
        ),
    ),
)
