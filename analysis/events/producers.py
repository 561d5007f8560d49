"""Who waits for whom on the GPU: the producers of each operation (spec §15.2)."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

import polars as pl

from nsysflow.analysis.causes import RUNTIME
from nsysflow.analysis.events.classes import queue_limit_ns
from nsysflow.analysis.events.events import Events, Operations
from nsysflow.analysis.frames.columns import matching, scatter_table
from nsysflow.analysis.frames.intervals import sort_with_ties

STREAM_WAIT: Final = f"^{RUNTIME}StreamWaitEvent$"

EVENT_RECORD: Final = f"^{RUNTIME}EventRecord"

STREAM: Final = ["process", "device", "stream"]

EDGES: Final = pl.Schema({"op": pl.UInt32(), "source": pl.UInt32()})
"""A row per wait of an operation `op` for the end of another, `source`."""
Edges = Annotated[pl.DataFrame, EDGES]

HOST_WAITS: Final = pl.Schema(
    {"call": pl.UInt32(), "record_op": pl.UInt32(), "awaited_no": pl.UInt32()}
)
"""A row per call in which the host waits: for the operation before an event, or for a stream."""


@dataclass(frozen=True, kw_only=True)
class EventWaits:
    """Waits that the report names.

    Attributes:
        edges: from the last operation launched on an event's stream before the event was recorded
            to the first one launched on a stream after it was told to wait.
        hosts: the waits of the host.
        named: stream waits whose event the report names.
        missing: those whose event it does not name.
    """

    edges: Edges
    hosts: Annotated[pl.DataFrame, HOST_WAITS]
    named: int
    missing: int


def event_waits(events: Events) -> EventWaits:
    """Match waits, records of events and operations."""
    asked = _stream_waits(events)
    if events.trace.waits.is_empty():
        none = EDGES.to_frame(), HOST_WAITS.to_frame()
        return EventWaits(edges=none[0], hosts=none[1], named=0, missing=asked)
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
    named = waits.filter(by_stream)["record"].count()
    return EventWaits(
        edges=after[["op", "source"]].drop_nulls(),
        hosts=hosts.unique("call", keep="first", maintain_order=True),
        named=named,
        missing=max(0, asked - named),
    )


def _stream_waits(events: Events) -> int:
    """How many calls tell a stream to wait; a call inside another one with its correlation id is
    the same one."""
    waiting = events.calls.filter(matching(events.calls["name"], STREAM_WAIT))
    numbered = waiting.drop_nulls("correlation")
    once = numbered.select(pl.struct("thread_no", "correlation").n_unique()).item()
    return int(once) + len(waiting) - len(numbered)


def _launched_on(wanted: pl.Series, events: Events) -> pl.DataFrame:
    """The launched operations of the streams `wanted`, in the order of their launches."""
    ops = events.ops[["op", "launch_start_ns", "end_ns"]].with_columns(events.stream_no)
    ops = ops.filter(ops["stream_no"].is_in(wanted.unique().implode())).drop_nulls(
        "launch_start_ns"
    )
    return sort_with_ties(ops, "launch_start_ns", [pl.col("end_ns"), pl.col("op")]).drop("end_ns")


def _with_calls(rows: pl.DataFrame, events: Events) -> pl.DataFrame:
    """Records or waits, plus `call`, `name` and `time_ns` (its start) of the outermost call with
    their correlation id."""
    key = ["process", "correlation"]
    numbered = events.calls.filter(pl.col("correlation").is_in(rows["correlation"].implode()))
    process = events.threads["process"][numbered["thread_no"]]
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


OVERLAP_NS: Final = 2_000
"""As far as an operation may reach into one that waited for it: programmatic launches do."""


@dataclass(frozen=True, kw_only=True)
class Producers:
    """Whom operations waited for; rows of the operations, null where there is nobody.

    Attributes:
        latest: the one that ended last, of the operation before it on its stream and of those that
            its stream was told to wait for.
        by_event: the one that ended last of the latter alone.
        presumed: `latest`; where the report names no event that a stream waits for, also of the one
            that by its times was waited for.
    """

    latest: pl.Series
    by_event: pl.Series
    presumed: pl.Series


def producers(events: Events, waits: EventWaits) -> Producers:
    """The producers of all operations.

    Args:
        events: the trace.
        waits: of its streams and events.
    """
    before = _in_time(events.ops, _before(events.stream_no))
    awaited = _in_time(events.ops, _in_order(events.ops, waits.edges))
    by_event = _latest(events.ops, awaited)
    by_stream = scatter_table(len(events.ops), before["op"], before["source"])
    latest = presumed = _later(events.ops, by_stream, by_event)
    if not waits.named:
        presumed = _later(events.ops, latest, _ended_before(events))
    return Producers(latest=latest, by_event=by_event, presumed=presumed)


def _ended_before(events: Events) -> pl.Series:
    """Per operation the one of its process and device that ended last before it began, if it was
    launched before that, and began no later after that than work that is only delayed."""
    key = ["process", "device_no"]
    times = events.ops[["op", *key, "start_ns", "end_ns"]]
    ended = times.filter(pl.col("end_ns") > pl.col("start_ns"))
    ended = ended.select(*key, "end_ns", source="op").sort("end_ns", "source")
    began = events.ops[["op", *key, "start_ns", "launch_start_ns", "call"]]
    began = began.drop_nulls("launch_start_ns").sort("start_ns")
    found = began.join_asof(
        ended, left_on="start_ns", right_on="end_ns", by=key, check_sortedness=False
    )
    found = found.with_columns(queue_limit_ns(events.calls, found["call"]))
    end_ns = pl.col("end_ns")
    late_ns = pl.col("start_ns") - end_ns
    found = found.filter(end_ns > pl.col("launch_start_ns"), late_ns <= pl.col("limit_ns"))
    return scatter_table(len(events.ops), found["op"], found["source"])


def _before(stream_no: pl.Series) -> Edges:
    """`op` and `source`: each operation and the one before it on its stream."""
    rows = stream_no.to_frame("stream").with_row_index("op").sort("stream", maintain_order=True)
    same = pl.col("stream") == pl.col("stream").shift(1)
    return rows.with_columns(pl.col("op").shift(1).alias("source")).filter(same).drop("stream")


def _in_time(ops: Operations, edges: Edges) -> Edges:
    """The edges whose source had ended when the operation began."""
    ended = ops["end_ns"][edges["source"]]
    return edges.filter(ended <= ops["start_ns"][edges["op"]] + OVERLAP_NS)


def _in_order(ops: Operations, edges: Edges) -> Edges:
    """The edges from another device, or whose source comes earlier in the order of operations."""
    device, device_of_source = (ops["device_no"][edges[side]] for side in ("op", "source"))
    return edges.filter((device != device_of_source) | (edges["source"] < edges["op"]))


def _latest(ops: Operations, edges: Edges) -> pl.Series:
    """Per operation the source that ended last; of equal ones the later in order."""
    ended = edges.with_columns(ops["end_ns"][edges["source"]].alias("end_ns"))
    ended = ended.sort("end_ns", "source")
    return scatter_table(len(ops), ended["op"], ended["source"])


def _later(ops: Operations, by_stream: pl.Series, by_event: pl.Series) -> pl.Series:
    """Per operation the one of two sources that ended last; of equal ones the later in order."""
    if by_event.null_count() == len(by_event):
        return by_stream
    both = pl.DataFrame({"stream": by_stream, "event": by_event}).with_row_index("op")
    edges = both.filter(pl.col("event").is_not_null())
    sides = [edges.select("op", source=side).drop_nulls() for side in ("stream", "event")]
    later = _latest(ops, pl.concat(sides))[edges["op"]]
    return by_stream.scatter(edges["op"], later)
