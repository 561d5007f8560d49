"""Where each device's time went (spec §2): compute, exposed communication and copies, idle."""

from dataclasses import dataclass
from typing import Self

import polars as pl

from nsysflow.analysis.intervals import Axis, Cover, merge
from nsysflow.analysis.prepare import Prepared
from nsysflow.analysis.rounding import percent
from nsysflow.analysis.schema import ACCOUNTING, CAUSES


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
        compute = merge(spans.filter(part == "compute"))
        with_comm = merge(spans.filter(part != "copy")) if "comm" in has else compute
        return cls(
            compute=Cover(compute),
            with_comm=Cover(with_comm),
            all=Cover(merge(spans) if "copy" in has else with_comm),
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


def accounting_table(
    prepared: Prepared, windows: pl.DataFrame, busy: Busy, ops: pl.DataFrame, gaps: pl.DataFrame
) -> pl.DataFrame:
    """The `ACCOUNTING` table, without `report`.

    Args:
        prepared: the trace.
        windows: what is looked at; a device's windows are summed.
        busy: the devices' busy time.
        ops: the operations that start in the windows.
        gaps: the gaps in the windows, with their causes.
    """
    causes = [f"{cause}_ns" for cause in CAUSES]
    ns, kernel = pl.col("end_ns") - pl.col("start_ns"), pl.col("kind") == "kernel"
    parts = windows.hstack(busy.parts(windows, prepared.axis).get_columns())
    in_parts = [
        name for name in parts.columns if name.endswith("_ns") and name not in windows.columns
    ]
    parts = parts.group_by("device_no").agg(
        pl.col("start_ns").min(), pl.col("end_ns").max(), pl.col(in_parts).sum()
    )
    counted = ops.group_by("device_no").agg(
        pl.len().cast(pl.Int64).alias("ops"),
        kernel.sum().cast(pl.Int64).alias("kernels"),
        ns.filter(kernel).sum().alias("kernel_ns"),
        ns.filter(pl.col("part") == "copy").sum().alias("copy_ns"),
        ns.filter(pl.col("part") == "comm").sum().alias("comm_ns"),
    )
    idle = gaps.group_by("device_no").agg(
        pl.len().cast(pl.Int64).alias("gaps"), pl.col(causes).sum()
    )
    # A window may hold the middle of an operation, or of a gap, and no operation's start.
    looked_at = pl.concat([ops["device_no"], windows["device_no"]]).unique().implode()
    devices = prepared.ops.select("device_no", "device").unique()
    counts = ("ops", "kernels", "kernel_ns", "copy_ns", "comm_ns", "gaps")
    names = prepared.trace.devices.select("device", "name").unique("device", keep="first")
    return (
        devices.filter(pl.col("device_no").is_in(looked_at))
        .join(counted, on="device_no", how="left")
        .join(parts, on="device_no", how="left")
        .join(idle, on="device_no", how="left")
        .join(names, on="device", how="left")
        .with_columns(
            pl.col(*counts, *causes, *in_parts).fill_null(0),
            hidden_pct(pl.col("copy_exposed_ns"), pl.col("copy_union_ns")).alias("copy_hidden_pct"),
            hidden_pct(pl.col("comm_exposed_ns"), pl.col("comm_union_ns")).alias("comm_hidden_pct"),
        )
        .sort("device")
        .select([name for name in ACCOUNTING if name != "report"])
    )


def hidden_pct(exposed: pl.Expr, union: pl.Expr) -> pl.Expr:
    """Share of `union` that ran under something else; null where there was none."""
    return percent(union - exposed, union)
