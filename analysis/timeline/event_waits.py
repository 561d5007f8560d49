"""Who waits for which event: what the profiler recorded of it (spec §1, §14)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import polars as pl

from nsysflow.analysis.frames.intervals import sort_with_ties
from nsysflow.analysis.frames.lookup import matching

if TYPE_CHECKING:
    from nsysflow.analysis.timeline.events import Events

STREAM_WAIT: Final = r"^(?:cuda|cu)StreamWaitEvent$"

EVENT_RECORD: Final = r"^(?:cuda|cu)EventRecord"

STREAM: Final = ["process", "device", "stream"]


@dataclass(frozen=True, kw_only=True)
class EventWaits:
    """Waits that the report names.

    Attributes:
        edges: `op` and `source`: the first operation launched on a stream after it was told to
            wait, and the last one launched on the event's stream before the event was recorded.
        hosts: `call`, and `record_op` (the operation before the event that the host waits for) or
            `awaited_no` (the stream that it waits for).
        missing: stream waits whose event the report does not name.
    """

    edges: pl.DataFrame
    hosts: pl.DataFrame
    missing: int


def event_waits(events: "Events") -> EventWaits:
    """Match waits, records of events and operations."""
    asked = int(matching(events.calls["name"], STREAM_WAIT).sum())
    if events.trace.waits.is_empty():
        return EventWaits(edges=_NO_EDGES, hosts=_NO_HOSTS, missing=asked)
    stream_no = events.stream_no
    first = stream_no.to_frame().with_row_index("op").unique("stream_no")
    streams = events.ops.select(STREAM)[first["op"]].hstack([first["stream_no"]])
    both = pl.concat([events.trace.event_records, events.trace.waits])
    placed = _with_calls(both, events).join(streams, on=STREAM, how="left", nulls_equal=True)
    recording = matching(placed["name"], EVENT_RECORD)
    launched = _launched_on(placed["stream_no"], events)
    before = _neighbour(placed.filter(recording), launched, "backward")
    key = ["process", "record"]
    waits = placed.filter(~recording).join(before.select(*key, source="op"), on=key, how="left")
    by_stream = matching(waits["name"], STREAM_WAIT)
    after = _neighbour(waits.filter(by_stream), launched, "forward")
    hosts = waits.filter(~by_stream)
    hosts = hosts.select("call", record_op="source", awaited_no="stream_no")
    return EventWaits(
        edges=after.select("op", "source").drop_nulls(),
        hosts=hosts.unique("call", keep="first", maintain_order=True),
        missing=max(0, asked - waits.filter(by_stream)["record"].count()),
    )


_NO_EDGES: Final = pl.DataFrame(schema={"op": pl.UInt32, "source": pl.UInt32})
_NO_HOSTS: Final = pl.DataFrame(
    schema={"call": pl.UInt32, "record_op": pl.UInt32, "awaited_no": pl.UInt32}
)


def _launched_on(wanted: pl.Series, events: "Events") -> pl.DataFrame:
    """The launched operations of the streams `wanted`, in the order of their launches."""
    ops = events.ops.select("op", "launch_start_ns", "end_ns").with_columns(events.stream_no)
    ops = ops.filter(ops["stream_no"].is_in(wanted.unique().implode())).drop_nulls(
        "launch_start_ns"
    )
    return sort_with_ties(ops, "launch_start_ns", [pl.col("end_ns"), pl.col("op")]).drop("end_ns")


def _with_calls(rows: pl.DataFrame, events: "Events") -> pl.DataFrame:
    """Records or waits, plus `call`, `name` and `time_ns` (its start) of the outermost call with
    their correlation id."""
    key = ["process", "correlation"]
    numbered = events.calls.filter(pl.col("correlation").is_in(rows["correlation"].implode()))
    process = events.threads["process"].gather(numbered["thread_no"])
    calls = numbered.select(process, "correlation", "call", "name", time_ns="start_ns")
    first = calls.sort("time_ns", "call").unique(key, keep="first", maintain_order=True)
    return rows.join(first, on=key)


def _neighbour(
    rows: pl.DataFrame, launched: pl.DataFrame, side: Literal["backward", "forward"]
) -> pl.DataFrame:
    """`rows` plus `op`: the last operation launched on their stream before them (`backward`), or
    the first one after them (`forward`)."""
    return (
        rows.drop_nulls("stream_no")
        .sort("time_ns")
        .join_asof(
            launched,
            left_on="time_ns",
            right_on="launch_start_ns",
            by="stream_no",
            strategy=side,
            check_sortedness=False,
        )
    )
