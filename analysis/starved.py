"""Stretches in which the GPU waited for launches, and what a CUDA graph would make of them
(spec §5)."""

from typing import Final

import polars as pl

from nsysflow.analysis.attribution import Attribution
from nsysflow.analysis.intervals import last_at_or_before
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


def starved_table(attribution: Attribution, ops: pl.DataFrame, gaps: pl.DataFrame) -> pl.DataFrame:
    """The `STARVED` table, without `report`, dearest first.

    Args:
        attribution: nodes and paths.
        ops: operations, sorted on the device axis, with `node`.
        gaps: all gaps with their causes.
    """
    runs = _runs(ops, gaps).filter(
        2 * pl.col("launch_idle_ns") >= pl.col("reach") - pl.col("place")
    )
    members = ops.select(*MEMBER_COLUMNS)
    held = members.join_asof(runs.with_row_index("run"), on="place", check_sortedness=False)
    return _windows(attribution, held.filter(pl.col("place") < pl.col("reach")))


def _runs(ops: pl.DataFrame, gaps: pl.DataFrame) -> pl.DataFrame:
    """The runs of operations that no gap breaks, on the device axis: `place`, `reach`,
    `launch_idle_ns`, `idle_ns`. Gaps up to 2 us, or half of which is `launch`, break none."""
    length = pl.col("end_ns") - pl.col("start_ns")
    lasting = ops.lazy().filter(length > 0)
    last = (pl.col("place") + length).max().alias("reach")
    whole = lasting.group_by("device_no").agg(pl.col("place").first(), last)
    device = whole.sort("place").collect()
    breaks = (length > SHORT_GAP_NS) & (2 * pl.col("launch_ns") < length)
    walked = gaps.select(
        ops["place"].gather(gaps["next_op"]),
        length.alias("gap_ns"),
        "launch_ns",
        breaks.alias("breaks"),
    ).with_columns(
        # Running sums before and after each gap; a run's idle is a difference of two of them.
        pl.col("gap_ns").cum_sum().alias("idle_ns"),
        pl.col("launch_ns").cum_sum().alias("launch_idle_ns"),
    )
    broken = walked.filter("breaks")
    begin = pl.concat([device["place"], broken["place"]]).sort()
    reach = pl.concat([device["reach"], broken["place"] - broken["gap_ns"]]).sort()
    first, past = (last_at_or_before(walked["place"], places) for places in (begin, reach))
    sums = {
        name: walked[name].gather(past).fill_null(0) - walked[name].gather(first).fill_null(0)
        for name in ("idle_ns", "launch_idle_ns")
    }
    return pl.DataFrame({"place": begin, "reach": reach, **sums})


def _windows(attribution: Attribution, members: pl.DataFrame) -> pl.DataFrame:
    """One row per run of `members`, operations with their run's columns."""
    length = pl.col("end_ns") - pl.col("start_ns")
    launch = pl.col("launch_start_ns").drop_nulls().sort()
    interval = launch.diff()
    members = members.filter(pl.len().over("run") >= MIN_OPS)
    members = members.with_columns(attribution.path_of(members["node"]))
    windows = members.group_by("run").agg(
        pl.col("device").first(),
        pl.col("start_ns").first(),
        (pl.col("start_ns") + pl.col("reach") - pl.col("place")).first().alias("end_ns"),
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
