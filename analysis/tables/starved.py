"""Starved windows: stretches in which the GPU waited for launches (spec §5)."""

from typing import Final

import polars as pl

from nsysflow.analysis.events.graphs import GRAPH_NODE_NS
from nsysflow.analysis.frames.columns import median_ns
from nsysflow.analysis.frames.intervals import Axis, last_at_or_before, on_axis, overlaps
from nsysflow.analysis.idle.run_ahead import Gaps
from nsysflow.analysis.phases.attribution import Attribution, PlacedOps
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

STARVED: Final = TableSchema(
    """One row per starved window (spec §5), most launch-caused idle first, cut to the selection.
    `kernels` counts distinct kernels.""",
    [
        *shared("report device"),
        Column(
            "phase",
            pl.String(),
            "the NVTX ranges that most of its operations were launched in",
        ),
        *shared("start_ns end_ns"),
        Column("ops", pl.Int64(), "how many operations start in it"),
        Column("kernels", pl.Int64(), "how many different kernels"),
        Column("median_kernel_ns", pl.Int64(), "the median duration of its operations"),
        Column(
            "median_interval_ns",
            pl.Int64(),
            "the median time from one launch to the next; if longer than the operations, the GPU "
            "runs dry",
        ),
        Column("launch_idle_ns", pl.Int64(), "idle time caused by launching"),
        *shared("idle_ns graph_estimate_ns"),
    ],
)

SHORT_GAP_NS: Final = 2_000
"""Kernel to kernel on a full queue takes 1 to 2 us: shorter gaps neither make nor break a run."""

NEAR_NS: Final = 50_000
"""Launch gaps this close to each other are one run; an operation longer than this ends one."""

MIN_OPS: Final = 8

MEMBER_COLUMNS: Final = (
    *("op", "node", "kind", "name", "device", "start_ns", "end_ns", "launch_start_ns"),
)
"""The columns of an operation that a window needs."""


def starved_runs(ops: PlacedOps, gaps: Gaps) -> pl.DataFrame:
    """The stretches that runs of launch gaps make: `start`, `end` on the device axis, sorted.

    A launch gap is longer than 2 us, and at least half of it is `launch`. In a run, each begins
    within 50 us of the end of the one before, with no other gap over 2 us between.

    Args:
        ops: operations, sorted on the device axis.
        gaps: all gaps with their causes, in order.
    """
    length = pl.col("end_ns") - pl.col("start_ns")
    next_op = ops.select("place", length.alias("next_ns"))[gaps["next_op"]]
    big = gaps.select(
        "device_no",
        length.alias("gap_ns"),
        (2 * pl.col("launch_ns") >= length).alias("launching"),
        "start_ns",
        "end_ns",
    ).hstack(next_op.get_columns())
    big = big.filter(pl.col("gap_ns") > SHORT_GAP_NS)
    before = pl.struct("device_no", "launching").shift(1).struct
    joins = (
        before.field("launching")
        & (before.field("device_no") == pl.col("device_no"))
        & (pl.col("start_ns") - pl.col("end_ns").shift(1) <= NEAR_NS)
    )
    short = pl.when(pl.col("next_ns") <= NEAR_NS).then("next_ns").otherwise(0)
    return (
        big.with_columns((~joins.fill_null(value=False)).cum_sum().alias("run"))
        .filter("launching")
        .group_by("run", maintain_order=True)
        .agg(
            (pl.col("place") - pl.col("gap_ns")).first().alias("start"),
            (pl.col("place") + short).last().alias("end"),
        )
        .select("start", "end")
    )


def starved_table(view: View) -> pl.DataFrame:
    """The STARVED table, most launch-caused idle first."""
    axis, ops = view.events.axis, view.timeline.ops
    runs = starved_runs(ops, view.timeline.gaps)
    return _listed(view, overlaps(runs, on_axis(view.windows, axis)), ops, axis)


def _listed(view: View, runs: pl.DataFrame, ops: PlacedOps, axis: Axis) -> pl.DataFrame:
    """The rows of STARVED: runs that are at least half launch-caused idle."""
    runs = runs.hstack(_idle(axis, runs, view.gaps))
    runs = runs.filter(2 * pl.col("launch_idle_ns") >= pl.col("end") - pl.col("start"))
    runs = runs.select(
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("run"),
        pl.col("start").alias("place"),
        pl.col("end").alias("reach"),
        axis.time_ns(pl.col("start")).alias("start_ns"),
        (axis.time_ns(pl.col("start")) + pl.col("end") - pl.col("start")).alias("end_ns"),
        *("launch_idle_ns", "idle_ns"),
    )
    run = last_at_or_before(runs["place"], ops["place"]).alias("run")
    held = (ops["place"] < runs["reach"][run]).fill_null(value=False)
    members = ops.select(*MEMBER_COLUMNS, run).filter(held)
    return _windows(view.attribution, members, runs.drop("place", "reach"))


def _idle(axis: Axis, runs: pl.DataFrame, gaps: Gaps) -> list[pl.Series]:
    """`idle_ns`, `launch_idle_ns` of the gaps in each of `runs`."""
    # running sums after each gap; the idle time of a run is the difference of two of them
    walked = gaps.select(
        axis.at(pl.col("device_no"), pl.col("end_ns")).alias("end"),
        (pl.col("end_ns") - pl.col("start_ns")).cum_sum().alias("idle_ns"),
        pl.col("launch_ns").cum_sum().alias("launch_idle_ns"),
    )
    first, past = (last_at_or_before(walked["end"], runs[edge]) for edge in ("start", "end"))
    return [
        walked[name][past].fill_null(0) - walked[name][first].fill_null(0)
        for name in ("idle_ns", "launch_idle_ns")
    ]


def _windows(attribution: Attribution, members: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """A row for each run with enough members; `members` are operations with their `run`."""
    length = pl.col("end_ns") - pl.col("start_ns")
    launch = pl.col("launch_start_ns").drop_nulls().sort()
    interval = launch.diff()
    members = members.filter(pl.len().over("run") >= MIN_OPS)
    members = members.with_columns(attribution.path_of(members["node"]))
    windows = members.group_by("run").agg(
        pl.col("device").first(),
        pl.len().cast(pl.Int64).alias("ops"),
        median_ns(interval.filter(interval > 0)).alias("median_interval_ns"),
        (length.sum() + GRAPH_NODE_NS * pl.len()).cast(pl.Int64).alias("graph_estimate_ns"),
    )
    of_kernels = (
        members.filter(pl.col("kind") == "kernel")
        .group_by("run")
        .agg(
            pl.col("name").n_unique().cast(pl.Int64).alias("kernels"),
            median_ns(length).alias("median_kernel_ns"),
        )
    )
    windows = windows.join(runs, on="run").join(of_kernels, on="run", how="left")
    windows = windows.join(_commonest(members), on="run")
    windows = windows.with_columns(pl.col("kernels").fill_null(0))
    phase = attribution.paths["joined"][windows["path"]].fill_null("").alias("phase")
    return windows.with_columns(phase).sort(
        "launch_idle_ns", "device", "start_ns", descending=[True, False, False]
    )


def _commonest(members: pl.DataFrame) -> pl.DataFrame:
    """The phase with most of each run's operations, the earliest on a tie."""
    counted = members.group_by("run", "path").agg(pl.len().alias("count"), pl.col("op").min())
    return (
        counted.sort("run", "count", "op", descending=[False, True, False])
        .unique("run", keep="first", maintain_order=True)
        .select("run", "path")
    )


TABLES: Final = (
    Table(
        name="starved",
        schema=STARVED,
        make=starved_table,
        json_key="starved",
        full_rows=10,
        filled_by="this selection has no launch-bound stretch of 8 operations or more",
        shown=(
            "launch_idle_ns phase ops graph_estimate_ns start_ns device report "
            "median_kernel_ns median_interval_ns"
        ),
    ),
)
