"""Load a report of any kind; an `.nsys-rep` is exported by nsys first."""

from pathlib import Path

from nsysflow.analysis.load import dispatch
from nsysflow.analysis.load.nsys_export.tables import Shapes
from nsysflow.analysis.trace import Trace
from nsysflow.nsys import exporter


def load(path: str | Path, *, nsys: str | Path | None = None, shapes: Shapes = True) -> Trace:
    """A report as canonical frames, whatever kind of report it is.

    Args:
        path: an nsys SQLite export, plain or compressed (`.xz`, `.gz`, `.zst`); a `parquetdir`
            export; an `.nsys-rep`; a run's folder; or a torch.profiler (Kineto) trace.
        nsys: the nsys to export an `.nsys-rep` with; the one found on this machine when None.
        shapes: also read how kernels were launched (grid, block, registers, shared memory), or
            only their grid. The `kernels` table needs all of it, findings need the grid. It is a
            quarter of the time of a big SQLite export.

    Raises:
        NotAReport: it is none of these.
        Damaged: it is truncated or corrupt, or nsys cannot export it.
        Busy: another program is writing it.
        Incomplete: it lacks a table or column that every export has.
        ReportError: it cannot be read, or there is no nsys to export it with.
        OutputError: no space is left to unpack or export it.
        CaptureError: the nsys asked for does not start.
    """
    export = exporter(Path(nsys) if nsys is not None else None)
    return dispatch.load(path, export=export, shapes=shapes)
