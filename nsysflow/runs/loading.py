"""Load a report of any kind, exporting it first where it is an `.nsys-rep`."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.frames.scratch import Scratch
from nsysflow.analysis.load import dispatch
from nsysflow.analysis.load.export_tables import Shapes
from nsysflow.analysis.trace import Trace
from nsysflow.nsys.run import exporter

_GRID: Final = ("grid_x", "grid_y", "grid_z")


def load(
    path: str | Path,
    *,
    nsys: str | Path | None = None,
    shapes: Shapes = True,
    scratch: Scratch | None = None,
) -> Trace:
    """A report as canonical frames, whatever kind of report it is.

    Args:
        path: an nsys SQLite export, plain or compressed (`.xz`, `.gz`, `.zst`); a `parquetdir`
            export; an `.nsys-rep`; a run's folder; or a torch.profiler (Kineto) trace.
        nsys: the nsys to export an `.nsys-rep` with; the one found on this machine when None.
        shapes: also give how kernels were launched (grid, block, registers, shared memory), or
            only their grid. The `kernels` table needs all of it, findings need the grid. It is a
            quarter of the time of a big SQLite export.
        scratch: where large frames are kept, these and all made of them; None for memory.

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
    trace = dispatch.load(Path(path), export=export, shapes=shapes, scratch=scratch)
    return replace(trace, shapes=_without_shapes(trace.shapes, shapes))


def _without_shapes(frame: pl.DataFrame, asked: Shapes) -> pl.DataFrame:
    """SHAPES with null in the columns that were not asked for: some loaders cannot leave them
    out."""
    return frame.with_columns(
        pl.lit(None, schema.SHAPES[name]).alias(name) for name in _not_asked(asked)
    )


def _not_asked(asked: Shapes) -> Collection[str]:
    wanted = {True: tuple(schema.SHAPES), "grid": _GRID, False: ()}[asked]
    return [name for name in schema.SHAPES if name not in wanted]
