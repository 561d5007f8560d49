"""The times of each launch, and how far the host was ahead of the GPU (spec §5)."""

import polars as pl

from nsysflow.analysis.timeline.events import Events


def launches(events: Events) -> pl.DataFrame:
    """The times of each launch call, up to the start of its first operation.

    Returns:
        `op`, `call`, `api_ns`, `latency_ns`, `queue_ns`, `run_ahead`.
    """
    columns = ["op", "call", "thread_no", "start_ns", "launch_start_ns", "launch_end_ns"]
    ops = events.ops.select("first", *columns).filter("first")
    start, end = pl.col("launch_start_ns"), pl.col("launch_end_ns")
    return ops.select(
        "op",
        "call",
        (end - start).alias("api_ns"),
        (pl.col("start_ns") - start).alias("latency_ns"),
        (pl.col("start_ns") - end).clip(lower_bound=0).alias("queue_ns"),
        _run_ahead(events, ops),
    )


def _run_ahead(events: Events, launches: pl.DataFrame) -> pl.Series:
    """The number of operations of the process that were launched but not started at each launch."""
    times = events.ops.select("call", "thread_no", "start_ns", "launch_start_ns")
    launched = _on_process_axis(times.drop_nulls("call"), events)
    places = _on_process_axis(launches, events)["launched"]
    begun = launched["launched"].sort().search_sorted(places, side="left")
    started = launched.select(pl.max_horizontal(pl.col("launched") + 1, "started")).to_series()
    gone = started.sort().search_sorted(places, side="right")
    return (begun.cast(pl.Int64) - gone.cast(pl.Int64)).alias("run_ahead")


def _on_process_axis(ops: pl.DataFrame, events: Events) -> pl.DataFrame:
    process = events.threads["process_no"].gather(ops["thread_no"])
    axis = events.axis
    return ops.select(
        axis.at(pl.lit(process), pl.col("launch_start_ns")).alias("launched"),
        axis.at(pl.lit(process), pl.col("start_ns")).alias("started"),
    )
