"""What launching cost (spec §5): call, latency, queue and run-ahead per launch, by phase."""

from typing import Final

import polars as pl

from nsysflow.analysis.attribution import Attribution
from nsysflow.analysis.keys import os_pid
from nsysflow.analysis.prepare import Prepared
from nsysflow.analysis.rounding import median_ns, p95_ns, percent, whole_ns
from nsysflow.analysis.schema import LAUNCHES

_KEY: Final = ["process", "path"]


def launch_rows(prepared: Prepared) -> pl.DataFrame:
    """Per launch call, at its first operation: `op`, `call`, `api_ns`, `latency_ns`, `queue_ns` and
    `run_ahead`."""
    columns = ["op", "call", "thread_no", "start_ns", "launch_start_ns", "launch_end_ns"]
    ops = prepared.ops.select("first", *columns).filter("first")
    start, end = pl.col("launch_start_ns"), pl.col("launch_end_ns")
    return ops.select(
        "op",
        "call",
        (end - start).alias("api_ns"),
        (pl.col("start_ns") - start).alias("latency_ns"),
        (pl.col("start_ns") - end).clip(lower_bound=0).alias("queue_ns"),
        _run_ahead(prepared, ops),
    )


def _run_ahead(prepared: Prepared, launches: pl.DataFrame) -> pl.Series:
    """The process's operations launched before each launch that had not started by then."""
    times = prepared.ops.select("call", "thread_no", "start_ns", "launch_start_ns")
    launched = _on_process_axis(times.drop_nulls("call"), prepared)
    places = _on_process_axis(launches, prepared)["launched"]
    begun = launched["launched"].sort().search_sorted(places, side="left")
    started = launched.select(pl.max_horizontal(pl.col("launched") + 1, "started")).to_series()
    gone = started.sort().search_sorted(places, side="right")
    return (begun.cast(pl.Int64) - gone.cast(pl.Int64)).alias("run_ahead")


def _on_process_axis(ops: pl.DataFrame, prepared: Prepared) -> pl.DataFrame:
    process = prepared.threads["process_no"].gather(ops["thread_no"])
    axis = prepared.axis
    return ops.select(
        axis.at(pl.lit(process), pl.col("launch_start_ns")).alias("launched"),
        axis.at(pl.lit(process), pl.col("start_ns")).alias("started"),
    )


def launch_table(
    attribution: Attribution,
    launches: pl.DataFrame,
    gaps: pl.DataFrame,
    idle: pl.DataFrame,
    spans: pl.DataFrame,
) -> pl.DataFrame:
    """The `LAUNCHES` table, without `report`, in tree order.

    Args:
        attribution: nodes and paths.
        launches: of `launch_rows`, with `process` and `node`.
        gaps: gaps with their causes.
        idle: of `phases.phase_idle`.
        spans: `process`, `path`, `span_ns`.
    """
    late = gaps.filter(pl.col("launch_ns") > 0)["next_call"].unique()
    placed = launches.filter(pl.col("node").is_not_null())
    rows = placed.select(
        *("process", "api_ns", "latency_ns", "queue_ns", "run_ahead"),
        pl.col("call").is_in(late.implode()).alias("starved"),
        attribution.path_of(placed["node"]),
    )
    levels = [_by_path(level) for level in attribution.levels(rows)]
    if not levels:
        return LAUNCHES.to_frame().drop("report")
    return (
        pl.concat(levels)
        .join(attribution.paths.select("path", "joined", "key"), on="path")
        .join(idle.select(*_KEY, "launch_ns"), on=_KEY, how="left")
        .join(spans, on=_KEY, how="left")
        .sort("process", "key")
        .with_columns(
            os_pid(pl.col("process")).alias("process"),
            pl.col("joined").alias("path"),
            percent(pl.col("launch_ns").fill_null(0), pl.col("span_ns")).alias("starved_pct"),
        )
        .select([name for name in LAUNCHES if name != "report"])
    )


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
