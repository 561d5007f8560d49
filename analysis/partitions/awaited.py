"""Which launches were told to wait for which others, so that a partition can hold both."""

from typing import Literal

import polars as pl

from nsysflow.analysis.frames.lookup import matching
from nsysflow.analysis.timeline.event_waits import EVENT_RECORD, STREAM_WAIT
from nsysflow.analysis.trace import Trace

KEY = ("process", "correlation")
_STREAM = ("process", "device", "stream")


def awaited(trace: Trace) -> pl.DataFrame:
    """A row per wait of a stream that found an event.

    Returns:
        `process`, and the correlation ids `waiter` (of the first operation launched on the stream
        after the wait), `wait` (of the wait itself), `noting` (of the call that recorded the
        event) and `source` (of the last operation launched before that); and `record`.
    """
    if trace.waits.is_empty():
        return _NOTHING
    both = pl.concat([trace.event_records, trace.waits])
    launching = trace.ops.select(*KEY, "device", "stream")
    launching = launching.join(both, on=_STREAM, how="semi", nulls_equal=True)
    named = pl.concat([both.select(KEY), launching.select(KEY)]).unique()
    calls = (
        trace.calls.select(*KEY, "name", "end_ns", time_ns="start_ns")
        .join(named, on=KEY, how="semi")
        .sort("time_ns", -pl.col("end_ns"))
        .unique(KEY, keep="first", maintain_order=True)
        .drop("end_ns")
    )
    noted = trace.event_records.join(calls, on=KEY)
    asked = trace.waits.join(calls, on=KEY)
    noted = noted.filter(matching(noted["name"], EVENT_RECORD))
    asked = asked.filter(matching(asked["name"], STREAM_WAIT))
    launched = launching.join(calls, on=KEY).sort("time_ns")
    sources = _neighbour(noted, launched, "backward", "source")
    sources = sources.select("process", "record", "source", noting="correlation")
    waiters = _neighbour(asked, launched, "forward", "waiter")
    waiters = waiters.select("process", "record", "waiter", wait="correlation")
    return waiters.join(sources, on=["process", "record"]).drop_nulls().select(_NOTHING.columns)


_NOTHING = pl.DataFrame(
    schema={
        "process": pl.Int64,
        **dict.fromkeys(("waiter", "wait", "noting", "source", "record"), pl.Int64),
    }
)


def _neighbour(
    rows: pl.DataFrame, launched: pl.DataFrame, side: Literal["backward", "forward"], name: str
) -> pl.DataFrame:
    """`rows` with the correlation id of the launch next to them on their stream, as `name`."""
    others = launched.select(*_STREAM, "time_ns", pl.col("correlation").alias(name))
    return (
        rows.drop_nulls("stream")
        .sort("time_ns")
        .join_asof(others, on="time_ns", by=_STREAM, strategy=side, check_sortedness=False)
    )
