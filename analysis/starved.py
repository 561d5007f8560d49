"""Stretches in which the GPU waited for launches, and what a CUDA graph would make of them
(spec §5)."""

from typing import Final

import polars as pl

from nsysflow.analysis.attribution import Attribution
from nsysflow.analysis.phases import GRAPH_LAUNCH_NS
from nsysflow.analysis.rounding import median_ns
from nsysflow.analysis.schema import STARVED

SHORT_GAP_NS: Final = 2_000
"""Kernel to kernel on a full queue takes 1 to 2 us: a gap up to 2 us breaks no run."""

MIN_OPS: Final = 8


def starved_table(attribution: Attribution, ops: pl.DataFrame, gaps: pl.DataFrame) -> pl.DataFrame:
    """The `STARVED` table, without `report`, dearest first.

    Args:
        attribution: nodes and paths.
        ops: operations, sorted on the device axis, with `node`.
        gaps: all gaps with their causes.
    """
    waited = gaps.select(
        pl.col("next_op").alias("op"),
        (pl.col("end_ns") - pl.col("start_ns")).alias("gap_ns"),
        pl.col("launch_ns"),
    )
    long = pl.col("gap_ns") > SHORT_GAP_NS
    breaks = (long & (2 * pl.col("launch_ns") < pl.col("gap_ns"))).fill_null(value=False)
    other_device = (pl.col("device_no") != pl.col("device_no").shift(1)).fill_null(value=False)
    walked = (
        ops.lazy()
        .select(
            "op",
            "device",
            "device_no",
            "start_ns",
            "end_ns",
            "name",
            "kind",
            "launch_start_ns",
            "call",
            "node",
        )
        .join(waited.lazy(), on="op", how="left", maintain_order="left")
        .with_columns((breaks | other_device).alias("breaks"))
        .with_columns(pl.col("breaks").cum_sum().alias("run"))
    )
    inside = ~pl.col("breaks")
    span = pl.col("end_ns").max() - pl.col("start_ns").min()
    idle = pl.col("launch_ns").filter(inside).sum()
    runs = (
        walked.group_by("run")
        .agg(pl.len().alias("ops"), idle.alias("launch_idle_ns"), span.alias("span_ns"))
        .filter(pl.col("ops") >= MIN_OPS, 2 * pl.col("launch_idle_ns") >= pl.col("span_ns"))
    )
    members = walked.join(runs.select("run"), on="run", how="semi").collect()
    return _windows(attribution, members)


def _windows(attribution: Attribution, members: pl.DataFrame) -> pl.DataFrame:
    """One row per run of `members`."""
    length = pl.col("end_ns") - pl.col("start_ns")
    inside = ~pl.col("breaks")
    kernel = pl.col("kind") == "kernel"
    distinct_launches = pl.col("launch_start_ns").filter(pl.col("call").is_first_distinct())
    interval = distinct_launches.drop_nulls().sort().diff().drop_nulls()
    members = members.with_columns(pl.Series("phase", attribution.name_of(members["node"])))
    return (
        members.join(_commonest(members), on="run", suffix="_of_run")
        .group_by("run")
        .agg(
            pl.col("device").first(),
            pl.col("phase_of_run").first().alias("phase"),
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            pl.len().cast(pl.Int64).alias("ops"),
            pl.col("name").filter(kernel).n_unique().cast(pl.Int64).alias("kernels"),
            median_ns(length.filter(kernel)).alias("median_kernel_ns"),
            median_ns(interval).alias("median_interval_ns"),
            pl.col("launch_ns").filter(inside).sum().alias("launch_idle_ns"),
            pl.col("gap_ns").filter(inside).sum().alias("idle_ns"),
            (length.sum() + GRAPH_LAUNCH_NS * pl.len()).cast(pl.Int64).alias("graph_estimate_ns"),
        )
        .sort("launch_idle_ns", "device", "start_ns", descending=[True, False, False])
        .select([name for name in STARVED if name != "report"])
    )


def _commonest(members: pl.DataFrame) -> pl.DataFrame:
    """The phase with most of each run's operations, the earliest on a tie."""
    counted = members.group_by("run", "phase").agg(pl.len().alias("count"), pl.col("op").min())
    return (
        counted.sort("run", "count", "op", descending=[False, True, False])
        .unique("run", keep="first", maintain_order=True)
        .select("run", "phase")
    )
