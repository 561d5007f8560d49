"""The queue of launches, which holds so many and no more (spec §14)."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.lookup import by_number
from nsysflow.analysis.frames.statistics import median_ns

LIMIT: Final = 1024
"""Launches that the queue of a GPU holds. The next one returns when the first of them is done."""

FULL: Final = 1000
"""With so many before it, a launch was held up: what it took says nothing of its own cost."""

CHECKED: Final = 16
"""The replay looks at the queue at every 16th launch: a run of launches may pass the limit by 15,
and has a sixteenth of the nodes."""

USUAL_COST_NS: Final = 5_000
"""What a launch costs where a report has none to measure."""


def with_queue(calls: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """`calls` (with `after`) plus the operation that a launch waits for because of the queue.

    A launch does not end before the one 1024 before it is done. One that found 1000 before it has
    the usual cost of its kind.
    """
    queued = _queued(ops, len(calls))
    if queued.is_empty():
        return calls
    waits = calls["after"].is_not_null().gather(queued["node"])
    queued = queued.filter(~waits)
    launched = calls.select("name", "end_ns", "cost_ns")[queued["node"]]
    usual = median_ns(pl.col("cost_ns").filter(~pl.col("full"))).over("name")
    usual = usual.fill_null(USUAL_COST_NS)
    done_ns = ops["end_ns"].gather(queued["ahead"])
    since = (pl.col("end_ns") - pl.lit(done_ns)).alias("after_ns")
    limited = queued.hstack(launched).with_columns(
        pl.when("full").then(pl.min_horizontal("cost_ns", usual)).otherwise("cost_ns"),
        pl.when("full").then(since).otherwise(0).alias("after_ns"),
        (since >= 0).alias("possible"),
    )
    limited = limited.filter("possible", pl.col("full") | (pl.col("place") % CHECKED == 0))
    return calls.with_columns(
        calls[column].scatter(limited["node"], limited[value])
        for column, value in (("cost_ns", "cost_ns"), ("after", "ahead"), ("after_ns", "after_ns"))
    )


def _queued(ops: pl.DataFrame, calls: int) -> pl.DataFrame:
    """Per launch that has 1024 before it on its device: `node`, its `place`, `ahead` (the last
    operation of the one 1024 before it) and whether it found the queue `full`."""
    launched = ops.filter(pl.col("node").is_not_null())
    last = by_number(calls, launched["node"], launched["op"])
    launches = launched.filter("first").select("node", "launch_start_ns", "process_no", "device_no")
    launches = launches.with_columns(last.gather(launches["node"]).alias("op"))
    found = []
    for _, group in launches.group_by("process_no", "device_no", maintain_order=True):
        if len(group) > LIMIT:
            found.append(_places(group.sort("launch_start_ns"), ops["end_ns"]))
    return pl.concat(found) if found else pl.DataFrame()


def _places(launches: pl.DataFrame, ends: pl.Series) -> pl.DataFrame:
    """`_queued` of one device, of launches in order."""
    done = ends.gather(launches["op"]).sort().search_sorted(launches["launch_start_ns"], "right")
    place = pl.int_range(pl.len(), dtype=pl.Int64)
    return launches.select(
        "node",
        place.alias("place"),
        pl.col("op").shift(LIMIT).alias("ahead"),
        (place - pl.lit(done).cast(pl.Int64) >= FULL).alias("full"),
    ).drop_nulls("ahead")
