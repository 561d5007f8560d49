"""Stretches in which the GPU waited for launches, and what a CUDA graph would make of them
(spec §5)."""

from typing import Final

import polars as pl

from nsysflow.analysis.attribution import Attribution
from nsysflow.analysis.intervals import Axis, last_at_or_before
from nsysflow.analysis.phases import GRAPH_LAUNCH_NS
from nsysflow.analysis.rounding import median_ns
from nsysflow.analysis.schema import STARVED

SHORT_GAP_NS: Final = 2_000
"""Kernel to kernel on a full queue takes 1 to 2 us: a gap up to 2 us breaks no run."""

MIN_OPS: Final = 8

MEMBER_COLUMNS: Final = (
    *("op", "node", "kind", "name", "device", "place", "start_ns", "end_ns", "launch_start_ns"),
)
"""What a window needs of its operations."""


def unbroken_runs(ops: pl.DataFrame, gaps: pl.DataFrame) -> pl.DataFrame:
    """The runs of operations that no gap breaks, `start` and `end` on the device axis, sorted.

    Gaps up to 2 us, or half of which is `launch`, break none.

    Args:
        ops: operations, sorted on the device axis.
        gaps: all gaps with their causes.
    """
    length = pl.col("end_ns") - pl.col("start_ns")
    lasting = ops.lazy().filter(length > 0)
    last = (pl.col("place") + length).max().alias("end")
    whole = lasting.group_by("device_no").agg(pl.col("place").first().alias("start"), last)
    device = whole.sort("start").collect()
    breaks = (length > SHORT_GAP_NS) & (2 * pl.col("launch_ns") < length)
    broken = gaps.select(
        ops["place"].gather(gaps["next_op"]).alias("end"),
        length.alias("gap_ns"),
        breaks.alias("breaks"),
    ).filter("breaks")
    begin = pl.concat([device["start"], broken["end"]]).sort()
    reach = pl.concat([device["end"], broken["end"] - broken["gap_ns"]]).sort()
    return pl.DataFrame({"start": begin, "end": reach.rename("end")})


def starved_table(
    attribution: Attribution, axis: Axis, ops: pl.DataFrame, runs: pl.DataFrame, gaps: pl.DataFrame
) -> pl.DataFrame:
    """The `STARVED` table, without `report`, dearest first.

    Args:
        attribution: nodes and paths.
        axis: of the devices.
        ops: operations, sorted on the device axis, with `node`.
        runs: `unbroken_runs`, cut to what is looked at.
        gaps: the gaps, or their parts, in what is looked at, in order, with their causes.
    """
    runs = runs.hstack(_idle(axis, runs, gaps))
    runs = runs.filter(2 * pl.col("launch_idle_ns") >= pl.col("end") - pl.col("start"))
    runs = runs.select(
        pl.int_range(pl.len()).alias("run"),
        pl.col("start").alias("place"),
        pl.col("end").alias("reach"),
        (pl.col("end") - pl.col("start")).alias("run_ns"),
        axis.time_ns(pl.col("start")).alias("run_start_ns"),
        *("launch_idle_ns", "idle_ns"),
    )
    members = ops.select(*MEMBER_COLUMNS)
    held = members.join_asof(runs, on="place", check_sortedness=False)
    return _windows(attribution, held.filter(pl.col("place") < pl.col("reach")))


def _idle(axis: Axis, runs: pl.DataFrame, gaps: pl.DataFrame) -> list[pl.Series]:
    """`idle_ns`, `launch_idle_ns` of the gaps in each of `runs`."""
    # Running sums after each gap; a run's idle is a difference of two of them.
    walked = gaps.select(
        axis.at(pl.col("device_no"), pl.col("end_ns")).alias("end"),
        (pl.col("end_ns") - pl.col("start_ns")).cum_sum().alias("idle_ns"),
        pl.col("launch_ns").cum_sum().alias("launch_idle_ns"),
    )
    first, past = (last_at_or_before(walked["end"], runs[edge]) for edge in ("start", "end"))
    return [
        walked[name].gather(past).fill_null(0) - walked[name].gather(first).fill_null(0)
        for name in ("idle_ns", "launch_idle_ns")
    ]


def _windows(attribution: Attribution, members: pl.DataFrame) -> pl.DataFrame:
    """One row per run of `members`, operations with their run's columns."""
    length = pl.col("end_ns") - pl.col("start_ns")
    launch = pl.col("launch_start_ns").drop_nulls().sort()
    interval = launch.diff()
    members = members.filter(pl.len().over("run") >= MIN_OPS)
    members = members.with_columns(attribution.path_of(members["node"]))
    windows = members.group_by("run").agg(
        pl.col("device").first(),
        pl.col("run_start_ns").first().alias("start_ns"),
        (pl.col("run_start_ns") + pl.col("run_ns")).first().alias("end_ns"),
        pl.len().cast(pl.Int64).alias("ops"),
        median_ns(interval.filter(interval > 0)).alias("median_interval_ns"),
        pl.col("launch_idle_ns", "idle_ns").first(),
        (length.sum() + GRAPH_LAUNCH_NS * pl.len()).cast(pl.Int64).alias("graph_estimate_ns"),
    )
    of_kernels = (
        members.filter(pl.col("kind") == "kernel")
        .group_by("run")
        .agg(
            pl.col("name").n_unique().cast(pl.Int64).alias("kernels"),
            median_ns(length).alias("median_kernel_ns"),
        )
    )
    windows = windows.join(of_kernels, on="run", how="left").join(_commonest(members), on="run")
    windows = windows.with_columns(pl.col("kernels").fill_null(0))
    phase = attribution.paths["joined"].gather(windows["path"]).fill_null("").alias("phase")
    return (
        windows.with_columns(phase)
        .sort("launch_idle_ns", "device", "start_ns", descending=[True, False, False])
        .select([name for name in STARVED if name != "report"])
    )


def _commonest(members: pl.DataFrame) -> pl.DataFrame:
    """The phase with most of each run's operations, the earliest on a tie."""
    counted = members.group_by("run", "path").agg(pl.len().alias("count"), pl.col("op").min())
    return (
        counted.sort("run", "count", "op", descending=[False, True, False])
        .unique("run", keep="first", maintain_order=True)
        .select("run", "path")
    )
