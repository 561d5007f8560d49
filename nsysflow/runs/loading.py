"""Load a report of any kind, from the cache where it is kept there."""

import time
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Final

from nsysflow.analysis.frames.scratch import Scratch
from nsysflow.analysis.load import dispatch
from nsysflow.analysis.load.export_tables import Shapes
from nsysflow.analysis.trace import Trace
from nsysflow.base.names import report_name
from nsysflow.nsys.run import exporter
from nsysflow.runs.cache import Store, fingerprint
from nsysflow.runs.kept_frames import about, frames_of, without_shapes

WORTH_S: Final = 0.25
"""A report that loads faster is not kept: to read what was kept of it takes a tenth of a second."""


def load(
    path: str | Path,
    *,
    nsys: str | Path | None = None,
    shapes: Shapes = True,
    scratch: Scratch | None = None,
) -> Trace:
    """A report as canonical frames, whatever kind of report it is.

    The frames of a report that took long to load are kept in the user's cache folder, and a later
    call reads them from there (`nsysflow cache`).

    Args:
        path: an nsys SQLite export, plain or compressed (`.xz`, `.gz`, `.zst`); a `parquetdir`
            export; an `.nsys-rep`; a run's folder; or a torch.profiler (Kineto) trace.
        nsys: the nsys to export an `.nsys-rep` with; the one found on this machine when None.
        shapes: also give how kernels were launched (grid, block, registers, shared memory), or
            only their grid. The `kernels` table needs all of it, findings need the grid. It is a
            quarter of the time of a big SQLite export.
        scratch: where large frames are kept, these and all made of them; None for memory. With a
            scratch the cache is not used, as frames from the cache would be in memory.

    Raises:
        NotAReport: it is none of these.
        Damaged: it is truncated or corrupt, or nsys cannot export it.
        Busy: another program is writing it.
        Incomplete: it lacks a table or column that every export has.
        ReportError: it cannot be read, or there is no nsys to export it with.
        OutputError: no space is left to unpack or export it.
        CaptureError: the nsys asked for does not start.
    """
    path, asked = Path(path), Path(nsys) if nsys is not None else None
    store = Store.here() if scratch is None else None
    if store is None:
        return _read(path, asked, shapes, scratch)
    key = fingerprint(path, asked)
    kept = None if key is None else store.get(key, shapes)
    if kept is not None:
        return replace(kept, report=report_name(path))
    begin_s = time.monotonic()
    trace = _read(path, asked, shapes)
    worth = time.monotonic() - begin_s >= WORTH_S
    if worth and key is not None and key == fingerprint(path, asked):  # did it change meanwhile?
        _keep(store, key, shapes, trace, path)
    return trace


def _read(path: Path, nsys: Path | None, shapes: Shapes, scratch: Scratch | None = None) -> Trace:
    """The report itself. Some loaders cannot leave out how kernels were launched."""
    trace = dispatch.load(path, export=exporter(nsys), shapes=shapes, scratch=scratch)
    return replace(trace, shapes=without_shapes(trace.shapes, shapes))


def _keep(store: Store, key: str, shapes: Shapes, trace: Trace, path: Path) -> None:
    """Keep a trace, in a thread: it takes a quarter of the loading, and the analysis need not wait.
    Python ends when the thread has ended."""
    said = about(trace, path)
    if said is not None:
        Thread(target=store.put, args=(key, shapes, frames_of(trace), said)).start()
