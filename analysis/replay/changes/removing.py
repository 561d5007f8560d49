"""Calls that are removed from a program (spec §14)."""

from dataclasses import replace
from typing import Final

import polars as pl

from nsysflow.analysis.frames.lookup import matching
from nsysflow.analysis.frames.statistics import median_ns
from nsysflow.analysis.replay.dependencies.program import Program
from nsysflow.analysis.schema import CAUSE
from nsysflow.analysis.timeline.call_classes import COPY, SYNC_AFTER_NS

ASYNC_COPY_NS: Final = 5_000
"""What launching a copy costs where a report has no asynchronous one to measure."""


def without_calls(program: Program, nodes: pl.Series) -> Program:
    """`program` in which the calls `nodes` take no time and wait for nothing.

    A blocking copy becomes an asynchronous one: its call costs what such a call does, and its
    operation follows as soon after it as any other. (From pageable memory the host copies first:
    100 us and more lie between the start of the call and that of the operation.)
    """
    gone = pl.repeat(value=False, n=len(program.calls), eager=True).scatter(nodes, values=True)
    is_copy = matching(program.calls["name"], COPY)
    launched = program.calls.filter((pl.col("class") == "launch") & is_copy)
    usual = launched.select(median_ns(pl.col("cost_ns"))).item()
    launching = ASYNC_COPY_NS if usual is None else usual
    blocking = pl.col("class") == "blocking_copy"
    cost = pl.when(blocking).then(pl.min_horizontal("cost_ns", launching)).otherwise(0)
    removed, kept = pl.lit(gone), pl.lit(~gone)
    calls = program.calls.with_columns(
        pl.when(removed).then(cost).otherwise("cost_ns").alias("cost_ns"),
        pl.when(removed)
        .then(pl.when(blocking).then(pl.lit("launch")).otherwise(pl.lit("api")).cast(CAUSE))
        .otherwise("class")
        .alias("class"),
        *(pl.when(kept).then(name).alias(name) for name in ("after", "after_ns")),
    )
    copied = pl.col("node").is_in(program.calls.filter(removed & blocking)["node"].implode())
    soon = pl.min_horizontal("lag_ns", program.usual_lag_ns)
    ops = program.ops.with_columns(pl.when(copied).then(soon).otherwise("lag_ns").alias("lag_ns"))
    return replace(program, calls=calls, ops=ops)


def blocking_copies(program: Program) -> pl.Series:
    """The nodes of copies that block the host: by themselves, or by a sync right after them."""
    copying = program.ops.filter(pl.col("kind") == "memcpy")["node"].drop_nulls().unique()
    copies = pl.col("node").is_in(copying.implode()).shift(1)
    behind = pl.col("thread_no") == pl.col("thread_no").shift(1)
    soon = pl.col("start_ns") - pl.col("end_ns").shift(1) <= SYNC_AFTER_NS
    waits = (pl.col("class") == "sync") & behind & soon & copies
    blocks = (pl.col("class") == "blocking_copy") | waits.fill_null(value=False)
    return program.calls.filter(blocks)["node"]
