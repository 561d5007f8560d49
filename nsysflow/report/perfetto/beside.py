"""What the trace of a report has beside its picture, so that nsysflow can read the report back."""

from collections.abc import Iterator
from typing import Final

import msgspec
import polars as pl

from nsysflow.analysis.events.events import Events
from nsysflow.analysis.frames.source_files import shown_files
from nsysflow.analysis.load.observations import observations_of_notes
from nsysflow.analysis.load.pack import loss_message
from nsysflow.analysis.load.pftrace.exported import (
    FRAMES,
    ExportedLane,
    ExportedReport,
    ExportedRows,
)
from nsysflow.analysis.load.pftrace.names import REPORT_FIELD, ROWS_FIELD
from nsysflow.analysis.schema import os_pid
from nsysflow.report.perfetto.packets import Packets

_LANES: Final = ("stream", "calls")
_ROWS: Final = 50_000
"""Rows in memory as Python objects at a time."""


def tell_report(
    packets: Packets, events: Events, lanes: pl.DataFrame, first: pl.Series, shift_ns: int
) -> None:
    """Write what a report has beside its picture.

    Args:
        packets: where to.
        events: of the report.
        lanes: `LANES` of its picture.
        first: the first track of each lane.
        shift_ns: what was added to the times of slices.
    """
    trace = events.trace
    told = ExportedReport(
        report=trace.report,
        collector=trace.collector,
        source=trace.source,
        shift_ns=shift_ns,
        lanes=[*_lanes(events, lanes, first)],
        notes=[(note.kind, note.text) for note in trace.notes],
        seen={
            kind: msgspec.Raw(msgspec.json.encode(modules))
            for kind, modules in observations_of_notes(trace.notes).items()
        },
    )
    packets.tell(REPORT_FIELD, msgspec.json.encode(told))
    ended = pl.when("ended").then("end_ns").alias("end_ns")
    loss = pl.col("text").map_elements(loss_message, pl.String)
    others = {
        "ranges": events.ranges.with_columns(ended),
        "overhead": events.overhead,
        "frames": trace.frames.with_columns(_shown(trace.frames["file"])),
        "diagnostics": trace.diagnostics.with_columns(loss).drop_nulls("text"),  # without paths
    }
    for name, schema in FRAMES.items():
        frame = others.get(name, getattr(trace, name)).select(schema.names())
        for part in frame.iter_slices(_ROWS):
            rows = ExportedRows(frame=name, columns=part.to_dict(as_series=False))
            packets.tell(ROWS_FIELD, msgspec.json.encode(rows))


def _lanes(events: Events, lanes: pl.DataFrame, first: pl.Series) -> Iterator[ExportedLane]:
    """The lanes of streams and calls, with the keys of their processes and threads."""
    processes = pl.concat([events.ops["process"], events.threads["process"]]).drop_nulls().unique()
    keys = dict(processes.to_frame().select(os_pid(pl.col("process")), key="process").rows())
    rows = lanes.with_columns(first.alias("first")).filter(pl.col("kind").is_in(_LANES))
    for lane in rows.iter_rows(named=True):
        process = keys.get(lane["process"])
        known = process is not None and lane["thread"] is not None
        yield ExportedLane(
            kind=lane["kind"],
            first=lane["first"],
            tracks=lane["rows"],
            process=process,
            thread=process | lane["thread"] if known else None,
            device=lane["device"],
            stream=lane["stream"],
        )


def _shown(files: pl.Series) -> pl.Series:
    """Source files by the names that the analysis shows, so that no path of the machine is told."""
    shown = shown_files(files.drop_nulls().unique())
    return files.replace_strict(
        pl.Series([*shown], dtype=pl.String),
        pl.Series([*shown.values()], dtype=pl.String),
        default=None,
        return_dtype=pl.String,
    )
