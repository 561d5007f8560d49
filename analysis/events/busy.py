"""When each device was busy, and how much of each collective was exposed (spec §2, §9)."""

from dataclasses import dataclass
from typing import Final, Self

import polars as pl

from nsysflow.analysis.events.events import LAUNCH_ORDER, Events, Operations
from nsysflow.analysis.frames.intervals import (
    Axis,
    Cover,
    flatten,
    last_at_or_before,
    merge,
    on_axis,
    overlaps,
)

SERIAL_NUMBERS: Final = r"(?s), (?:seq|op_id|sizes|input_op_ids) =.*$"
"""What PyTorch's `emit_nvtx` adds to an operator's name, so that equal operators group."""


@dataclass(frozen=True, kw_only=True)
class BusyTime:
    """Nested unions of a report's operations on the device axis; their differences are the parts.

    Attributes:
        compute: kernels that are not communication, and graph traces.
        with_comm: those and communication kernels.
        all: those and copies.
        comm: communication kernels alone.
        copies: copies alone.
    """

    compute: Cover
    with_comm: Cover
    all: Cover
    comm: Cover
    copies: Cover

    @classmethod
    def of(cls, ops: Operations) -> Self:
        """The unions of `ops`."""
        length = pl.col("end_ns") - pl.col("start_ns")
        spans = (
            ops.lazy()
            .filter(length > 0)
            .select(pl.col("place").alias("start"), (pl.col("place") + length).alias("end"), "part")
            .collect()
        )
        part = pl.col("part")
        has = set(spans["part"].unique())
        compute = Cover(merge(spans.filter(part == "compute")))
        with_comm = Cover(merge(spans.filter(part != "copy"))) if "comm" in has else compute
        return cls(
            compute=compute,
            with_comm=with_comm,
            all=Cover(merge(spans)) if "copy" in has else with_comm,
            comm=Cover(merge(spans.filter(part == "comm"))),
            copies=Cover(merge(spans.filter(part == "copy"))),
        )

    def parts(self, windows: pl.DataFrame, axis: Axis) -> pl.DataFrame:
        """The parts of each window (`device_no`, `start_ns`, `end_ns`): `window_ns`, `compute_ns`,
        `comm_exposed_ns`, `copy_exposed_ns`, `idle_ns`, `comm_union_ns`, `copy_union_ns`."""
        at = windows.select(
            axis.at(pl.col("device_no"), pl.col("start_ns")).alias("start"),
            axis.at(pl.col("device_no"), pl.col("end_ns")).alias("end"),
        )
        start, end = at["start"], at["end"]
        compute, with_comm, busy = (
            cover.between(start, end) for cover in (self.compute, self.with_comm, self.all)
        )
        return pl.DataFrame(
            {
                "window_ns": end - start,
                "compute_ns": compute,
                "comm_exposed_ns": with_comm - compute,
                "copy_exposed_ns": busy - with_comm,
                "idle_ns": end - start - busy,
                "comm_union_ns": self.comm.between(start, end),
                "copy_union_ns": self.copies.between(start, end),
            }
        )


NCCL: Final = "nccl"
"""NCCL's NVTX domain, in lower case: its ranges name the collective that a thread called."""


STATED_BY_NCCL: Final = pl.Schema(
    {"operation": pl.String(), "bytes": pl.Int64(), "communicator": pl.UInt64()}
)
"""What NCCL's range around a launch states; null where it lacks it."""


def communication_kernels(events: Events, ops: pl.DataFrame) -> pl.DataFrame:
    """Every communication kernel of `ops`, plus `STATED_BY_NCCL`."""
    kernels = ops.filter(pl.col("part") == "comm")
    stated = _ranges_of_nccl(events)
    axis = events.axis
    asked = kernels.select(axis.at(pl.col("thread_no"), pl.col("launch_start_ns"))).to_series()
    at = last_at_or_before(stated["start"], asked)
    inside = (asked < stated["end"].gather(at)).fill_null(value=False)
    row = at.set(~inside, None)
    return kernels.hstack(stated.select(pl.exclude("start", "end").gather(row)).get_columns())


def _ranges_of_nccl(events: Events) -> pl.DataFrame:
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
    return flatten(claims, rank=_innermost_first, keep=STATED_BY_NCCL.names())


def _innermost_first(claims: pl.DataFrame) -> pl.DataFrame:
    """The order of ranges that are open together: innermost first."""
    row = -pl.col("row").cast(pl.Int64)
    return claims.select(-pl.col("start"), pl.col("end"), row.alias("row"))


def _started_first(claims: pl.DataFrame) -> pl.DataFrame:
    """The order of kernels that run together: first started first, ties as in spec §3.1."""
    names = (pl.col(name).cast(pl.String) for name in ("short_name", "name"))
    return claims.select("start", *LAUNCH_ORDER, *names, "process", "end")


def with_exposed_time(
    kernels: pl.DataFrame, windows: pl.DataFrame, busy: BusyTime, axis: Axis
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
