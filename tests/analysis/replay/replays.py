"""Tiny traces replayed with changes. Times are in us."""

from dataclasses import replace

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.replay.apply import Baseline, changed
from nsysflow.analysis.replay.changes import Changes, Removal
from nsysflow.analysis.replay.replay import Times, recorded, replay
from nsysflow.analysis.selection.timeline import Timeline
from tests import tiny
from tests.in_us import US
from tests.oracle.model import Call, Gil, Op, Overhead, Range

MAIN, AUTOGRAD, WORKER = tiny.MAIN, tiny.AUTOGRAD, tiny.WORKER

Row = Call | Gil | Op | Range | Overhead
OnStream = tuple[int, int, int]
"""A record of an event, or a wait for it: correlation, stream, record."""


def timeline_of(
    *rows: Row, records: tuple[OnStream, ...] = (), waits: tuple[OnStream, ...] = ()
) -> Timeline:
    """These rows as recorded, taken apart, with records of events and waits for them."""
    trace = replace(
        tiny.trace_of(*rows),
        event_records=_on_streams(schema.EVENT_RECORDS, records),
        waits=_on_streams(schema.WAITS, waits),
    )
    return Timeline(trace, tiny.AS_RECORDED)


def _on_streams(frame: schema.Frame, rows: tuple[OnStream, ...]) -> pl.DataFrame:
    whole = [(tiny.PROCESS, 0, *row) for row in rows]
    return pl.DataFrame(whole, schema=frame, orient="row")


def without(kind: str, at: str | None = None) -> Changes:
    """A kind of wait removed."""
    return Changes(removed=(Removal(kind=kind, at=at),))


def replayed(timeline: Timeline, changes: Changes) -> Times:
    """When everything happens after the changes."""
    return replay(changed(Baseline.as_recorded(timeline, recorded(timeline)), changes))


def kernel_starts(timeline: Timeline, changes: Changes) -> list[float]:
    """When each operation begins after the changes, in us."""
    return [start / US for start in replayed(timeline, changes).ops["start_ns"]]


def call_ends(timeline: Timeline, changes: Changes) -> list[float]:
    """When each call that the replay knows ends after the changes, in us."""
    return [end / US for end in replayed(timeline, changes).calls["end_ns"]]
