"""The stretches of time without compute on each device (spec §15)."""

import polars as pl

from nsysflow.analysis.frames.intervals import reached_before
from nsysflow.analysis.timeline.events import Events

STRETCHES = pl.Schema(
    {
        "device_no": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "waiter": pl.UInt32(),
    }
)
"""From the first operation of a device to the end of its last one. `waiter` is the compute
operation that starts at the end; null in the stretch after the last one."""


def stretches_without_compute(events: Events) -> pl.DataFrame:
    """`STRETCHES`, those before the first compute operation of each device first."""
    reach = (pl.col("place") + pl.col("end_ns") - pl.col("start_ns")).alias("reach")
    positive = pl.col("end_ns") > pl.col("start_ns")
    ops = events.ops.lazy().filter(positive)
    lasting = ops.select("op", "device_no", "place", reach, "part").collect()
    windows = lasting.group_by("device_no").agg(pl.col("place").min(), pl.col("reach").max())
    compute = lasting.filter(pl.col("part") == "compute")
    reached = compute.group_by("device_no").agg(pl.col("reach").max().alias("reached"))
    first = compute.group_by("device_no").agg(pl.col("op").first(), pl.col("place").first())
    same_device = pl.col("device_no") == pl.col("device_no").shift(1)
    between = compute.with_columns(reached_before(pl.col("reach")).alias("before")).filter(
        same_device, pl.col("place") > pl.col("before")
    )
    before = windows.select("device_no", pl.col("place").alias("before")).join(
        first, on="device_no"
    )
    after = windows.join(reached, on="device_no", how="left").select(
        "device_no",
        pl.col("reached").fill_null(pl.col("place")).alias("before"),
        pl.col("reach").alias("place"),
        pl.lit(None, pl.UInt32).alias("op"),
    )
    columns = ["device_no", "before", "place", "op"]
    axis = events.axis
    return (
        pl.concat([frame.select(columns) for frame in (before, between, after)])
        .filter(pl.col("place") > pl.col("before"))
        .select(
            "device_no",
            axis.time_ns(pl.col("before")).alias("start_ns"),
            (axis.time_ns(pl.col("before")) + pl.col("place") - pl.col("before")).alias("end_ns"),
            pl.col("op").alias("waiter"),
        )
        .match_to_schema(STRETCHES)
    )
