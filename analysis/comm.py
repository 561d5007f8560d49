"""Communication kernels, one by one and summed up: what they moved, and what no compute hid (§9).

Where two of them run at once, that time belongs to the one that started first, so that what all
were exposed for is the accounting's, to the ns.
"""

from typing import Final

import polars as pl

from nsysflow.analysis.accounting import Busy, hidden_pct
from nsysflow.analysis.intervals import flatten, last_at_or_before, overlaps
from nsysflow.analysis.keys import os_pid
from nsysflow.analysis.prepare import LAUNCH_ORDER, Prepared
from nsysflow.analysis.range_names import SERIAL_NUMBERS
from nsysflow.analysis.rounding import median_ns
from nsysflow.analysis.schema import COLLECTIVES, COMM
from nsysflow.analysis.windows import laid

NCCL: Final = "nccl"
"""NCCL's NVTX domain, in lower case: its ranges say which collective a thread asked for."""


def comm_facts(prepared: Prepared, ops: pl.DataFrame) -> pl.DataFrame:
    """Every communication kernel with `operation`, `bytes`, `communicator`: what NCCL says of the
    range that launched it, null where it says nothing.

    Args:
        prepared: the trace.
        ops: operations with `node`.
    """
    facts = ops.filter(pl.col("part") == "comm")
    said = _said_by_nccl(prepared)
    axis = prepared.axis
    asked = facts.select(axis.at(pl.col("thread_no"), pl.col("launch_start_ns"))).to_series()
    at = last_at_or_before(said["start"], asked)
    inside = (asked < said["end"].gather(at)).fill_null(value=False)
    row = at.set(~inside, None)
    return facts.hstack(said.select(pl.exclude("start", "end").gather(row)).get_columns())


def _said_by_nccl(prepared: Prepared) -> pl.DataFrame:
    """Which of NCCL's ranges is the innermost, wherever one is open: disjoint `start`, `end` on the
    thread axis, and `operation`, `bytes`, `communicator`."""
    axis = prepared.axis
    ours = pl.col("domain").str.to_lowercase() == NCCL
    told = prepared.trace.messages.unique(["thread", "start_ns"], keep="first", maintain_order=True)
    ranges = prepared.ranges.filter(ours, pl.col("kind") == "push_pop").join(
        told, on=["thread", "start_ns"], how="left"
    )
    claims = ranges.select(
        axis.at(pl.col("thread_no"), pl.col("start_ns")).alias("start"),
        axis.at(pl.col("thread_no"), pl.col("end_ns")).alias("end"),
        pl.col("name").str.replace(SERIAL_NUMBERS, "").alias("operation"),
        *("bytes", "communicator", "row"),
    ).sort("start", "row")
    keep = ["operation", "bytes", "communicator"]
    return flatten(claims, rank=_innermost_first, keep=keep)


def _innermost_first(claims: pl.DataFrame) -> pl.DataFrame:
    """Of ranges that are open together: the one that started last, the shorter, the later row."""
    row = -pl.col("row").cast(pl.Int64)
    return claims.select(-pl.col("start"), pl.col("end"), row.alias("row"))


def _started_first(claims: pl.DataFrame) -> pl.DataFrame:
    """Of kernels that run together: the one that started first, ties as for the gaps (§3)."""
    names = (pl.col(name).cast(pl.String) for name in ("short_name", "name"))
    return claims.select("start", *LAUNCH_ORDER, *names, "process", "end")


def with_time(
    prepared: Prepared, facts: pl.DataFrame, windows: pl.DataFrame, busy: Busy
) -> pl.DataFrame:
    """`facts` with `busy_ns` and `exposed_ns`, in the windows: how long each ran as the first of
    those that ran, and how much of that no compute ran beside it."""
    axis = prepared.axis
    order = facts.select("op", *LAUNCH_ORDER, "short_name", "name", "process")
    claims = laid(facts, axis).hstack(order.get_columns())
    pieces = flatten(claims, rank=_started_first, keep=["op"])
    pieces = overlaps(pieces, laid(windows, axis))
    hidden = busy.compute.between(pieces["start"], pieces["end"])
    length = pl.col("end") - pl.col("start")
    times = (
        pieces.with_columns(hidden.alias("hidden"))
        .group_by("op")
        .agg(length.sum().alias("busy_ns"), (length - pl.col("hidden")).sum().alias("exposed_ns"))
    )
    return facts.join(times, on="op", how="left", maintain_order="left").with_columns(
        pl.col("busy_ns", "exposed_ns").fill_null(0)
    )


def comm_table(timed: pl.DataFrame, begun: pl.DataFrame) -> pl.DataFrame:
    """The `COMM` table, without `report`, what is exposed longest first.

    Args:
        timed: of `with_time`, with `phase`.
        begun: `op` of the operations that start in the windows, and are counted.
    """
    key = ["process", "device", "phase", "name", "operation"]
    here = pl.col("counted").fill_null(value=False)
    ns = (pl.col("end_ns") - pl.col("start_ns")).filter(here)
    counted = begun.select("op", pl.lit(value=True).alias("counted"))
    named = timed.with_columns(
        pl.col("short_name").cast(pl.String).alias("name"),
        os_pid(pl.col("process")).alias("process"),
    )
    measured = pl.col("bytes").filter(here)
    return (
        named.join(counted, on="op", how="left")
        .filter(here | (pl.col("busy_ns") > 0))
        .group_by(key)
        .agg(
            here.sum().cast(pl.Int64).alias("count"),
            pl.when(measured.count() > 0).then(measured.sum()).alias("bytes"),
            ns.sum().alias("total_ns"),
            median_ns(ns).alias("median_ns"),
            pl.col("busy_ns", "exposed_ns").sum(),
        )
        .with_columns(hidden_pct(pl.col("exposed_ns"), pl.col("busy_ns")).alias("hidden_pct"))
        .sort("exposed_ns", "busy_ns", *key, descending=[True, True, *[False] * len(key)])
        .select([name for name in COMM if name != "report"])
    )


def collectives(timed: pl.DataFrame) -> pl.DataFrame:
    """The `COLLECTIVES` table, without `report`: of `with_time`, with `phase`."""
    return (
        timed.with_columns(
            os_pid(pl.col("process")).alias("process"),
            pl.col("short_name").cast(pl.String).alias("name"),
        )
        .sort("device", "op")
        .select([name for name in COLLECTIVES if name != "report"])
    )
