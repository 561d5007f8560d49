"""A `Trace` in one file: a ZIP of Parquet files, one for each frame that has rows.

The ZIP has a checksum for each of them, so damage is noticed before polars reads it. Compressed by
zstd at its lowest level, a million kernels and their calls take 25 MB, and are read in a sixth
of the time of the SQLite export (docs/facts.md).
"""

from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, Literal
from zipfile import ZipFile

import msgspec
import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.export_tables import Shapes
from nsysflow.analysis.notes import Note, NoteKind
from nsysflow.analysis.trace import Trace

_ABOUT: Final = "trace.json"

_GRID: Final = ("grid_x", "grid_y", "grid_z")


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a kept trace says of itself.

    Attributes:
        path: the report that it was loaded from.
        collector: what recorded the program.
        source: what wrote the report.
        notes: kind and text of each note.
        frames: those that have rows; damage may hide one from the ZIP's list.
    """

    path: str
    collector: Literal["nsys", "kineto"]
    source: str
    notes: tuple[tuple[NoteKind, str], ...]
    frames: tuple[str, ...]


def without_shapes(shapes: pl.DataFrame, asked: Shapes) -> pl.DataFrame:
    """SHAPES with null in the columns that were not asked for."""
    return shapes.with_columns(
        pl.lit(None, schema.SHAPES[name]).alias(name) for name in _unasked(asked)
    )


def _unasked(asked: Shapes) -> Collection[str]:
    kept = {True: tuple(schema.SHAPES), "grid": _GRID, False: ()}[asked]
    return [name for name in schema.SHAPES if name not in kept]


def frames_of(trace: Trace) -> dict[str, pl.DataFrame]:
    """The frames of a trace that have rows, by field, the largest first."""
    frames = {field.name: getattr(trace, field.name) for field in fields(trace)}
    held = {
        name: frame
        for name, frame in frames.items()
        if isinstance(frame, pl.DataFrame) and not frame.is_empty()
    }
    return dict(sorted(held.items(), key=lambda item: -item[1].estimated_size()))


def about(trace: Trace, path: Path) -> About | None:
    """What a trace says of itself beside its frames; None where that holds for this path only."""
    if any(note.kind == NoteKind.BACKTRACES_NOT_EXPORTED for note in trace.notes):
        return None  # it names the files to export again
    return About(
        path=str(path.absolute()),
        collector=trace.collector,
        source=trace.source,
        notes=tuple((note.kind, note.text) for note in trace.notes),
        frames=tuple(frames_of(trace)),
    )


def write(file: Path, frames: dict[str, pl.DataFrame], said: About) -> None:
    """Write frames as `file`. Each is taken out of `frames` first, so that its memory can go.

    Raises:
        OSError: the file cannot be written.
    """
    with ZipFile(file, "x") as packed:
        packed.writestr(_ABOUT, msgspec.json.encode(said))
        while frames:
            name = next(iter(frames))
            with packed.open(f"{name}.parquet", "w", force_zip64=True) as member:
                frames.pop(name).write_parquet(
                    member, compression="zstd", compression_level=1, statistics=False
                )


def read(file: Path, shapes: Shapes) -> Trace:
    """The trace in `file`, without a name.

    Raises:
        OSError, ValueError, KeyError, EOFError, NotImplementedError, BadZipFile, PolarsError:
            it is damaged, or gone.
    """
    with ZipFile(file) as packed:
        said = msgspec.json.decode(packed.read(_ABOUT), type=About)
        frames: dict[str, Any] = {
            name: _frame(packed.read(f"{name}.parquet"), name, shapes) for name in said.frames
        }
    return Trace(
        report="",
        collector=said.collector,
        source=said.source,
        notes=tuple(Note(kind, text) for kind, text in said.notes),
        **frames,
    )


def read_about(file: Path) -> About:
    """What the trace in `file` says of itself.

    Raises:
        as `read`.
    """
    with ZipFile(file) as packed:
        return msgspec.json.decode(packed.read(_ABOUT), type=About)


def _frame(packed: bytes, name: str, shapes: Shapes) -> pl.DataFrame:
    if name != "shapes" or shapes is True:
        return pl.read_parquet(packed)
    rows = pl.read_parquet(packed, columns=[*_GRID])  # some column, for the number of rows
    return without_shapes(rows, shapes).select(schema.SHAPES.names())
