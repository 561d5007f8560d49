"""Which kernels are communication, what they sent, and how much of each was exposed.

If several run at once, that time belongs to the one that started first. So their exposed times sum
to the accounting's, to the ns.
"""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.intervals import Axis, flatten, last_at_or_before, on_axis, overlaps
from nsysflow.analysis.phases.forms import SERIAL_NUMBERS
from nsysflow.analysis.timeline.busy import Busy
from nsysflow.analysis.timeline.events import LAUNCH_ORDER, Events

NCCL: Final = "nccl"
"""NCCL's NVTX domain, in lower case: its ranges name the collective that a thread called."""


def communication(events: Events, ops: pl.DataFrame) -> pl.DataFrame:
    """Every communication kernel of `ops`, plus `operation`, `bytes` and `communicator`.

    They are from NCCL's range around the launch; null where it lacks them.
    """
    kernels = ops.filter(pl.col("part") == "comm")
    stated = _stated_by_nccl(events)
    axis = events.axis
    asked = kernels.select(axis.at(pl.col("thread_no"), pl.col("launch_start_ns"))).to_series()
    at = last_at_or_before(stated["start"], asked)
    inside = (asked < stated["end"].gather(at)).fill_null(value=False)
    row = at.set(~inside, None)
    return kernels.hstack(stated.select(pl.exclude("start", "end").gather(row)).get_columns())


def _stated_by_nccl(events: Events) -> pl.DataFrame:
    """When each of NCCL's ranges was the innermost one: disjoint `start`, `end` on the thread axis,
    with `operation`, `bytes`, `communicator`."""
    axis = events.axis
    by_nccl = pl.col("domain").str.to_lowercase() == NCCL
    messages = events.trace.messages.unique(
        ["thread", "start_ns"], keep="first", maintain_order=True
    )
    ranges = events.ranges.filter(by_nccl, pl.col("kind") == "push_pop").join(
        messages, on=["thread", "start_ns"], how="left"
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
    """The order of ranges that are open together: innermost first."""
    row = -pl.col("row").cast(pl.Int64)
    return claims.select(-pl.col("start"), pl.col("end"), row.alias("row"))


def _started_first(claims: pl.DataFrame) -> pl.DataFrame:
    """The order of kernels that run together: first started first, ties as in spec §3.1."""
    names = (pl.col(name).cast(pl.String) for name in ("short_name", "name"))
    return claims.select("start", *LAUNCH_ORDER, *names, "process", "end")


def with_exposed_time(
    kernels: pl.DataFrame, windows: pl.DataFrame, busy: Busy, axis: Axis
) -> pl.DataFrame:
    """`kernels` plus `busy_ns` and `exposed_ns` within the windows (spec §9.2).

    `busy_ns` is the time that belongs to the kernel, `exposed_ns` the part of it without compute.
    """
    order = kernels.select("op", *LAUNCH_ORDER, "short_name", "name", "process")
    claims = on_axis(kernels, axis).hstack(order.get_columns())
    pieces = flatten(claims, rank=_started_first, keep=["op"])
    pieces = overlaps(pieces, on_axis(windows, axis))
    hidden = busy.compute.between(pieces["start"], pieces["end"])
    length = pl.col("end") - pl.col("start")
    times = (
        pieces.with_columns(hidden.alias("hidden"))
        .group_by("op")
        .agg(length.sum().alias("busy_ns"), (length - pl.col("hidden")).sum().alias("exposed_ns"))
    )
    return kernels.join(times, on="op", how="left", maintain_order="left").with_columns(
        pl.col("busy_ns", "exposed_ns").fill_null(0)
    )
