"""When the host gets the batches that other processes make (spec §14)."""

from typing import Final

import polars as pl

from nsysflow.analysis.events.events import Events
from nsysflow.analysis.frames.intervals import on_axis, reached_before
from nsysflow.analysis.idle.samples import has_host_stacks, waiting_time
from nsysflow.analysis.phases.names import LOADS_DATA

LEAST_BATCH_NS: Final = 1_000_000
"""A shorter range in which data is loaded mostly takes a batch that is there."""

IDLE_WORKERS: Final = 2
"""If the workers of a process are busy for less than one part in so many of the time, they do not
set the pace: a batch comes some time after it was asked for, whenever that is."""


def with_batches(calls: pl.DataFrame, events: Events) -> pl.DataFrame:
    """`calls` with `batch_ns`: the ranges between a call and the one before it on its thread that
    load data and in which the host mostly waits for another thread or process. That is no work.
    And with `paced`.

    Args:
        calls: of `Host`.
        events: the trace.
    """
    length = pl.col("end_ns") - pl.col("start_ns")
    loading = events.ranges.filter(
        length >= LEAST_BATCH_NS, pl.col("name").cast(pl.String).str.contains(LOADS_DATA)
    )[["thread_no", "start_ns", "end_ns"]]
    if loading.is_empty() or not has_host_stacks(events.trace):
        return calls
    placed = on_axis(loading, events.axis, "thread_no")
    waited_ns = waiting_time(events).between(placed["start"], placed["end"])
    loading = loading.filter(2 * waited_ns >= placed["end"] - placed["start"])
    behind = _with_next_calls(loading, calls, "end_ns")
    follows = calls[["start_ns", "span_ns"]][behind["node"]]
    inside = behind["start_ns"] >= follows["start_ns"] - follows["span_ns"]
    batch = behind.filter("alone", inside).group_by("node").agg(length.sum().alias("batch_ns"))
    batch_ns = calls["batch_ns"].scatter(batch["node"], batch["batch_ns"])
    waits_at = events.threads.filter(pl.col("process").is_in(_unhurried(events).implode()))
    return calls.with_columns(
        batch_ns,
        (pl.col("work_ns") - batch_ns.fill_null(0)).alias("work_ns"),
        (~pl.col("thread_no").is_in(waits_at["thread_no"].implode())).alias("paced"),
    )


def _unhurried(events: Events) -> pl.Series:
    """The processes of which the workers of each loader are idle most of the time."""
    batches = events.trace.loader_times.filter(pl.col("worker").is_not_null())
    busy_ns = (pl.col("end_ns") - pl.col("start_ns")).sum()
    whole_ns = pl.col("workers").max().clip(1) * (pl.col("end_ns").max() - pl.col("start_ns").min())
    loaders = batches.group_by("process", "loader").agg(
        (IDLE_WORKERS * busy_ns < whole_ns).fill_null(value=False).alias("idle")
    )
    return loaders.group_by("process").agg(pl.col("idle").all()).filter("idle")["process"]


def _with_next_calls(rows: pl.DataFrame, calls: pl.DataFrame, when: str) -> pl.DataFrame:
    """Rows with the `node` of the first call of their thread that begins no earlier than `when`,
    when it begins (`begun_ns`), and whether it comes behind no other thread's call (`alone`).
    Those without such a call are left out."""
    begun = calls.select("thread_no", "node", begun_ns="start_ns").sort("begun_ns")
    behind = rows.sort(when).join_asof(
        begun,
        left_on=when,
        right_on="begun_ns",
        by="thread_no",
        strategy="forward",
        check_sortedness=False,
    )
    behind = behind.drop_nulls("node")
    follows = calls[["pred", "before"]][behind["node"]]
    alone = (follows["pred"] == follows["before"]).fill_null(value=False)
    return behind.with_columns(alone.alias("alone"))


_LOADER: Final = ["process", "loader"]


def with_feeds(calls: pl.DataFrame, events: Events) -> pl.DataFrame:
    """`calls` with `fed_after`, `feed_ns`, `asked_ns`, `fed_ns`: the workers of a DataLoader have
    no batch sooner, however fast the loop is.

    Args:
        calls: of `Host`.
        events: the trace.
    """
    times = events.trace.loader_times.filter(pl.col("start_ns") <= pl.col("end_ns"))
    if times.is_empty():
        return calls
    main = events.threads.filter("main").select("process", "thread_no").unique("process")
    got = times.filter(pl.col("worker").is_null()).join(main, on="process")
    got = got.join(batch_rates(times), on=_LOADER).rename(
        {"start_ns": "asked_ns", "end_ns": "fed_ns"}
    )
    users = _with_next_calls(got, calls, "fed_ns").unique([*_LOADER, "node"], keep="last")
    users = users.sort(*_LOADER, "fed_ns")
    earlier, begun_ns = (pl.col(name).shift(1).over(_LOADER) for name in ("node", "begun_ns"))
    fed = users.with_columns(
        earlier.alias("fed_after"),
        pl.min_horizontal("rate_ns", pl.col("begun_ns") - begun_ns).alias("feed_ns"),
    )
    fed = fed.filter("alone").drop_nulls("fed_after").sort("fed_ns", "loader")
    fed = fed.unique("node", keep="last")
    return calls.with_columns(
        calls[name].scatter(fed["node"], fed[name])
        for name in ("fed_after", "feed_ns", "asked_ns", "fed_ns")
    )


def batch_rates(times: pl.DataFrame) -> pl.DataFrame:
    """`process`, `loader`, `rate_ns`: how often the workers of each loader have a batch if they
    never wait. They take turns, so that the slowest one sets the pace. The first batch of a worker
    does not count, as it loads code.

    Args:
        times: `schema.LOADER_TIMES`.
    """
    made = pl.col("worker").is_not_null(), pl.col("start_ns") <= pl.col("end_ns")
    batches = times.filter(*made).sort("start_ns", "end_ns")
    free_ns = reached_before(pl.col("end_ns")).over(*_LOADER, "worker")
    busy_ns = (pl.col("end_ns") - pl.max_horizontal("start_ns", free_ns)).clip(lower_bound=0)
    batches = batches.with_columns(busy_ns.alias("busy_ns"), free_ns.alias("free_ns"))
    mean_ns = pl.col("busy_ns").sum() // pl.len()
    of_workers = batches.drop_nulls("free_ns").group_by(*_LOADER, "worker")
    means = of_workers.agg(mean_ns.alias("mean_ns"), pl.col("workers").max())
    workers = pl.col("workers").max().fill_null(1).clip(lower_bound=1)
    rate_ns = (pl.col("mean_ns").max() // workers).cast(pl.Int64)
    return means.group_by(_LOADER).agg(rate_ns.alias("rate_ns"))
