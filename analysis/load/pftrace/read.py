"""A trace in Perfetto's format as canonical frames, by what wrote it (spec §1.1)."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Final

from nsysflow.analysis.frames.scratch import Scratch, in_files
from nsysflow.analysis.load.kineto.document import OddEvent
from nsysflow.analysis.load.other_formats import not_a_perfetto_trace
from nsysflow.analysis.load.pftrace import exported, monitor, rocprof
from nsysflow.analysis.load.pftrace.contents import Contents, read_contents
from nsysflow.analysis.load.pftrace.names import REPORT_FIELD
from nsysflow.analysis.trace import Note, NoteKind, Trace
from nsysflow.base.errors import Damaged

_ARGUMENTS: Final = exported.ARGUMENTS | monitor.ARGUMENTS | rocprof.ARGUMENTS

_MOST: Final = 4
"""So many categories of other events are named."""


def read_pftrace(path: Path, shown: str, report: str, scratch: Scratch | None = None) -> Trace:
    """The trace at `path`, which messages call `shown`.

    Raises:
        NotAReport: it is a trace of another program, or of several reports.
        Damaged: it has no whole packet, or a number does not fit.
    """
    try:
        with path.open("rb") as file:
            contents = read_contents(file, _ARGUMENTS)
        if not contents.packets:
            raise Damaged(
                f"{shown} is truncated: it has no whole packet of Perfetto",
                "Copy it again, and compare its checksum with the original's",
                f"sha256sum {quote(shown)}",
            )
        trace = _trace_of(contents, shown, report)
    except OddEvent as error:
        raise Damaged(
            f"{shown} is corrupt: an event has {error}",
            "Copy it again, and compare its checksum with the original's",
            f"sha256sum {quote(shown)}",
        ) from None
    notes = (*trace.notes, *_notes(contents))
    return replace(trace, ops=in_files(trace.ops, scratch), notes=notes)


def _trace_of(contents: Contents, shown: str, report: str) -> Trace:
    """What it says, by what wrote it."""
    categories = {*contents.events["category"].drop_nulls().unique()}
    if any(field == REPORT_FIELD for field, _ in contents.names.ours):
        return exported.read_exported(contents, shown, report)
    if len(contents.stages) or categories & {*monitor.CATEGORIES}:
        return monitor.read_monitor(contents, report, Path(shown).parent)
    if categories & {*rocprof.CATEGORIES}:
        return rocprof.read_rocprof(contents, report)
    raise not_a_perfetto_trace(sorted(categories)[:_MOST], shown)


def _notes(contents: Contents) -> Iterator[Note]:
    if contents.left_bytes:
        yield Note(
            NoteKind.CUT_OFF,
            f"the file is cut off or damaged: its last {contents.left_bytes:,} bytes are no whole"
            f" packet and were left out, behind {contents.packets:,} packets",
        )
    if contents.compressed:
        yield Note(
            NoteKind.LEFT_OUT,
            f"{contents.compressed:,} packets hold others in compressed form and were left out;"
            " unpack them with traceconv decompress_packets",
        )
