"""`Scratch`: keeps large frames in files when a report is too large for memory."""

import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import polars as pl

from nsysflow.analysis.frames.mapped import drop_pages, is_mapped, mapped
from nsysflow.base.errors import OutputError

T = TypeVar("T")

LEAST_BYTES: Final = 1 << 18
"""Columns that take less memory than this are never written."""

SLICE_ROWS: Final = 1 << 22
"""So many rows are worked on at a time."""

_WRITERS: Final = 4
"""So many columns are written at a time."""

_WORTH_THREADS_BYTES: Final = 1 << 16
"""The columns of a smaller frame are written in less time than threads take to start."""


@dataclass(frozen=True)
class Scratch:
    """A folder on a disk with room.

    Attributes:
        folder: where it is; nothing is seen in it, as the files have no names.
        room_bytes: columns stay in memory while the process takes less than this.
        least_bytes: columns that take less memory than this are never written.
        slice_rows: how many rows are worked on at a time.
    """

    folder: Path
    room_bytes: int = 0
    least_bytes: int = LEAST_BYTES
    slice_rows: int = SLICE_ROWS

    def kept(self, value: T) -> T:
        """`value` with its large columns in files, unless there is room for them. Frames inside
        dataclasses, dicts and sequences are found too; a dataclass stays the same object."""
        kept = self._kept(value)
        drop_pages()
        return kept

    def _kept(self, value: T) -> T:
        kept: Any = value
        if isinstance(value, pl.DataFrame):
            kept = self._frame(value)
        elif isinstance(value, pl.Series):
            kept = self._column(value)
        elif isinstance(value, dict):
            kept = {key: self._kept(each) for key, each in value.items()}
        elif isinstance(value, list | tuple):
            kept = type(value)(map(self._kept, value))
        elif is_dataclass(value) and not isinstance(value, type | Scratch):
            for name, each in list(vars(value).items()):
                vars(value)[name] = self._kept(each)
        return cast("T", kept)

    def _frame(self, frame: pl.DataFrame) -> pl.DataFrame:
        if frame.estimated_size() < _WORTH_THREADS_BYTES:
            return frame.with_columns(map(self._column, frame.iter_columns()))
        with ThreadPoolExecutor(_WRITERS) as writers:
            return frame.with_columns(writers.map(self._column, frame.iter_columns()))

    def gathered(self, frame: pl.DataFrame, rows: pl.Series) -> pl.DataFrame:
        """These rows of a frame, one column after the other."""
        return pl.DataFrame([self._column(column.gather(rows)) for column in frame.iter_columns()])

    def slices(self, frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """`frame` in slices of `slice_rows`; at least one."""
        for first in range(0, max(len(frame), 1), self.slice_rows):
            yield frame.slice(first, self.slice_rows)

    def joined(self, parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
        """Frames below each other, each kept before the next one is made. Every column becomes
        one piece: queries copy whole frames of several pieces into memory."""
        found = [self.kept(part) for part in parts]
        columns = []
        for name in found[0].columns:
            columns.append(self._column(pl.concat([part[name] for part in found], rechunk=True)))
            found = [part.drop(name) for part in found]
        return pl.DataFrame(columns)

    def _column(self, column: pl.Series) -> pl.Series:
        if own_bytes() < self.room_bytes:
            return column
        pieces = (piece for piece in column.get_chunks() if not is_mapped(piece))
        if sum(piece.estimated_size() for piece in pieces) < self.least_bytes:
            return column
        try:
            return mapped(column, self.folder)
        except OSError as error:
            raise OutputError(
                f"large tables cannot be kept in {self.folder} ({error.strerror})",
                "Name another folder with room",
                "export TMPDIR=FOLDER",
            ) from error


def own_bytes() -> int:
    """The memory that only this process takes: without pages that can be read again from a file.
    Without limit where the system does not tell it."""
    try:
        _, resident, shared, *_ = Path("/proc/self/statm").read_bytes().split()
    except OSError:  # another system than Linux
        return sys.maxsize
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def in_slices(frame: pl.DataFrame, scratch: Scratch | None) -> Iterable[pl.DataFrame]:
    """A frame in slices where memory is short, else as a whole."""
    return [frame] if scratch is None else scratch.slices(frame)


def in_files(value: T, scratch: Scratch | None) -> T:
    """`value`, with its large columns in files where memory is short."""
    return value if scratch is None else scratch.kept(value)
