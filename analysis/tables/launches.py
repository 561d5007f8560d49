"""The cost of launching: call, latency, queue and run-ahead, by phase (spec §5)."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.columns import median_ns, p95_ns, percent, repeated, whole_ns
from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

LAUNCHES: Final = TableSchema(
    """One row per process and phase, including what is nested in it. `starved_launches` are those
    whose operation ended a gap with a launch part. `starved_pct` is launch-caused idle over span,
    within the selection.""",
    [
        *shared("report process path launches"),
        Column("api_ns", pl.Int64(), "time inside the launch calls, all together"),
        Column("api_mean_ns", pl.Int64(), "the mean duration of a launch call"),
        Column("api_median_ns", pl.Int64(), "the median duration of a launch call"),
        Column(
            "api_p95_ns",
            pl.Int64(),
            "the duration that 95 % of the launch calls do not exceed",
        ),
        Column(
            "latency_median_ns",
            pl.Int64(),
            "the median time from the start of a launch call to the start of its operation; grows "
            "with the queue",
        ),
        Column(
            "latency_p95_ns",
            pl.Int64(),
            "the time from launch to operation that 95 % do not exceed",
        ),
        Column(
            "queue_median_ns",
            pl.Int64(),
            "the median time that work waited in the queue after its launch call",
        ),
        Column("queue_p95_ns", pl.Int64(), "the time in the queue that 95 % do not exceed"),
        Column(
            "run_ahead_median",
            pl.Float64(),
            "how many operations were queued and had not started at a launch (median); near 0 the "
            "GPU waits for launches",
        ),
        Column("starved_launches", pl.Int64(), "how many launches the GPU waited for"),
        Column(
            "starved_pct",
            pl.Float64(),
            "the share of the phase's span in which the GPU waited for launches",
        ),
    ],
)

_KEY: Final = ["process", "path"]


def launch_table(view: View) -> pl.DataFrame:
    """The LAUNCHES table, in tree order."""
    attribution = view.attribution
    placed = view.launches.filter(pl.col("node").is_not_null())
    rows = placed.select(
        *("process", "api_ns", "latency_ns", "queue_ns", "run_ahead"),
        _starved(view, placed["call"]),
        attribution.path_of(placed["node"]),
    )
    levels = [
        _by_path(rows.with_columns(within[rows["path"]])).drop_nulls("path")
        for within in attribution.ancestors
    ]
    if not levels:
        return LAUNCHES.to_frame()
    return (
        pl.concat(levels)
        .join(attribution.paths[["path", "joined", "key"]], on="path")
        .join(view.idle[[*_KEY, "launch_ns"]], on=_KEY, how="left")
        .join(view.spans, on=_KEY, how="left")
        .sort("process", "key")
        .with_columns(
            os_pid(pl.col("process")).alias("process"),
            pl.col("joined").alias("path"),
            percent(pl.col("launch_ns").fill_null(0), pl.col("span_ns")).alias("starved_pct"),
        )
    )


def launches_outside(view: View) -> tuple[int, int]:
    """How many launches no range contains, and how many of them find the GPU idle."""
    calls = view.launching.filter(pl.col("node").is_null())["call"]
    return len(calls), int(_starved(view, calls).sum())


def launch_counts(view: View) -> pl.DataFrame:
    """`path` (joined), `launches` and `starved_launches` of the table, row by row, without the
    times that take long."""
    attribution = view.attribution
    placed = view.launching.filter(pl.col("node").is_not_null())
    rows = placed.select(
        "process", _starved(view, placed["call"]), attribution.path_of(placed["node"])
    )
    once = rows.group_by(_KEY).agg(
        pl.len().cast(pl.Int64).alias("launches"),
        pl.col("starved").sum().cast(pl.Int64).alias("starved_launches"),
    )
    counts = pl.col("launches", "starved_launches").sum()
    levels = [level.group_by(_KEY).agg(counts) for level in attribution.levels(once)]
    return (
        pl.concat([once.clear(), *levels])
        .join(attribution.paths[["path", "joined", "key"]], on="path")
        .sort("process", "key")
        .select(pl.col("joined").alias("path"), "launches", "starved_launches")
    )


def _starved(view: View, calls: pl.Series) -> pl.Series:
    """Whether a GPU waited for each of these launches."""
    waited_for = view.gaps.select(pl.col("next_call").filter(pl.col("launch_ns") > 0))
    starved = repeated(value=False, length=len(view.events.calls))
    return starved.scatter(waited_for.to_series().drop_nulls(), True)[calls].alias("starved")


def _by_path(launches: pl.DataFrame) -> pl.DataFrame:
    api, latency, queue = (pl.col(c) for c in ("api_ns", "latency_ns", "queue_ns"))
    return launches.group_by(_KEY).agg(
        pl.len().cast(pl.Int64).alias("launches"),
        api.sum().alias("api_ns"),
        whole_ns(api.mean()).alias("api_mean_ns"),
        median_ns(api).alias("api_median_ns"),
        p95_ns(api).alias("api_p95_ns"),
        median_ns(latency).alias("latency_median_ns"),
        p95_ns(latency).alias("latency_p95_ns"),
        median_ns(queue).alias("queue_median_ns"),
        p95_ns(queue).alias("queue_p95_ns"),
        pl.col("run_ahead").median().alias("run_ahead_median"),
        pl.col("starved").sum().cast(pl.Int64).alias("starved_launches"),
    )


TABLES: Final = (
    Table(
        name="launches",
        schema=LAUNCHES,
        make=launch_table,
        json_key="launches",
        filled_by="put NVTX ranges around the parts of the program: nsysflow.region",
        shown=(
            "path launches starved_pct api_median_ns process report latency_median_ns "
            "run_ahead_median starved_launches queue_median_ns"
        ),
    ),
)
