"""What each operation can have waited for on the GPU (spec §15)."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.frames.lookup import scatter_table
from nsysflow.analysis.timeline.events import Events

OVERLAP_NS: Final = 2_000
"""As far as an operation may reach into one that waited for it: programmatic launches do."""


@dataclass(frozen=True, kw_only=True)
class Producers:
    """Whom operations waited for; rows of the operations, null where there is nobody.

    Attributes:
        latest: the one that ended last, of the operation before it on its stream and of those that
            its stream was told to wait for.
        by_event: the one that ended last of the latter alone.
    """

    latest: pl.Series
    by_event: pl.Series


def producers(events: Events) -> Producers:
    """The producers of all operations."""
    before = _in_time(events.ops, _before(events.stream_no))
    awaited = _in_time(events.ops, _in_order(events.ops, events.event_waits.edges))
    by_event = _latest(events.ops, awaited)
    by_stream = scatter_table(len(events.ops), before["op"], before["source"])
    return Producers(latest=_later(events.ops, by_stream, by_event), by_event=by_event)


def _before(stream_no: pl.Series) -> pl.DataFrame:
    """`op` and `source`: each operation and the one before it on its stream."""
    rows = stream_no.to_frame("stream").with_row_index("op").sort("stream", maintain_order=True)
    same = pl.col("stream") == pl.col("stream").shift(1)
    return rows.with_columns(pl.col("op").shift(1).alias("source")).filter(same).drop("stream")


def _in_time(ops: pl.DataFrame, edges: pl.DataFrame) -> pl.DataFrame:
    """The edges whose source had ended when the operation began."""
    ended = ops["end_ns"].gather(edges["source"])
    return edges.filter(ended <= ops["start_ns"].gather(edges["op"]) + OVERLAP_NS)


def _in_order(ops: pl.DataFrame, edges: pl.DataFrame) -> pl.DataFrame:
    """The edges from another device, or whose source comes earlier in the order of operations."""
    one, other = (ops["device_no"].gather(edges[side]) for side in ("op", "source"))
    return edges.filter((one != other) | (edges["source"] < edges["op"]))


def _latest(ops: pl.DataFrame, edges: pl.DataFrame) -> pl.Series:
    """Per operation the source that ended last; of equal ones the later in order."""
    ended = edges.with_columns(ops["end_ns"].gather(edges["source"]).alias("end_ns"))
    ended = ended.sort("end_ns", "source")
    return scatter_table(len(ops), ended["op"], ended["source"])


def _later(ops: pl.DataFrame, by_stream: pl.Series, by_event: pl.Series) -> pl.Series:
    """Per operation the one of two sources that ended last; of equal ones the later in order."""
    if by_event.null_count() == len(by_event):
        return by_stream
    both = pl.DataFrame({"stream": by_stream, "event": by_event}).with_row_index("op")
    edges = both.filter(pl.col("event").is_not_null())
    sides = [edges.select("op", source=side).drop_nulls() for side in ("stream", "event")]
    later = _latest(ops, pl.concat(sides)).gather(edges["op"])
    return by_stream.scatter(edges["op"], later)
