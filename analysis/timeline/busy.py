"""When each device was busy: nested unions of its operations (spec §2)."""

from dataclasses import dataclass
from typing import Self

import polars as pl

from nsysflow.analysis.frames.intervals import Axis, Cover, merge


@dataclass(frozen=True, kw_only=True)
class Busy:
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
    def of(cls, ops: pl.DataFrame) -> Self:
        """The unions of `ops`, sorted on the device axis."""
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
