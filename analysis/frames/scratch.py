"""`Scratch`: keeps large frames in files when a report is too large for memory."""

import ctypes
import mmap
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar, cast

import polars as pl

from nsysflow.base.errors import OutputError

if TYPE_CHECKING:
    from pathlib import Path


_BITS: Final = 8

_TYPES: Final[dict[Any, tuple[bytes, int]]] = {
    pl.Boolean: (b"b", 1),
    pl.UInt8: (b"C", 8),
    pl.UInt16: (b"S", 16),
    pl.Int32: (b"i", 32),
    pl.UInt32: (b"I", 32),
    pl.Int64: (b"l", 64),
    pl.UInt64: (b"L", 64),
    pl.Float64: (b"g", 64),
}
"""Arrow's letter and the bits of a value, for each type that can be mapped."""

_ALIGNMENT: Final = 64

_NULLABLE: Final = 2


class _Schema(ctypes.Structure):
    """`struct ArrowSchema`."""


class _Array(ctypes.Structure):
    """`struct ArrowArray`."""


class _Stream(ctypes.Structure):
    """`struct ArrowArrayStream`."""


_ReleaseSchema = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Schema))
_ReleaseArray = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Array))
_Next = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.POINTER(_Array))

_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p),
    ("release", _ReleaseSchema),
    ("private_data", ctypes.c_void_p),
]
_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p),
    ("release", _ReleaseArray),
    ("private_data", ctypes.c_void_p),
]
_Stream._fields_ = [
    ("get_schema", ctypes.c_void_p),
    ("get_next", _Next),
    ("get_last_error", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]

_capsule: Final = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_pointer: Final = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]

_held: Final[dict[int, tuple[mmap.mmap, int, Any]]] = {}
"""The memory that polars looks at, where it begins and Arrow's list of buffers, by the number that
polars gives back when it lets go."""

_numbers: Final = count(1)


def mapped(column: pl.Series, folder: "Path") -> pl.Series:
    """The same column in a nameless file in `folder`; itself where it is empty, or of text.

    Raises:
        OSError: the file cannot be written.
    """
    physical = column.to_physical()
    if physical.dtype not in _TYPES or not len(physical):
        return column
    with _exported(physical.rechunk()) as array, TemporaryFile(dir=folder) as file:
        copy = _Copy(file, array, *_TYPES[physical.dtype])
    series = pl.Series(copy).alias(column.name)
    if column.flags["SORTED_ASC"]:
        series = series.set_sorted()
    return series.cat.to(column.dtype) if column.dtype != physical.dtype else series


def is_mapped(chunk: pl.Series) -> bool:
    """Whether a column that lies in one piece lies in a file."""
    physical = chunk.to_physical()
    if physical.dtype not in _TYPES:
        return False
    with _exported(physical) as array:
        at = array.buffers[1]
    return any(begin <= at < begin + len(memory) for memory, begin, _ in [*_held.values()])


def drop_pages() -> None:
    """Take no memory for any column in a file; its pages are mapped again when they are read."""
    for memory, _, _ in [*_held.values()]:
        memory.madvise(mmap.MADV_DONTNEED)


@contextmanager
def _exported(chunk: pl.Series) -> Iterator[_Array]:
    """Arrow's description of a column that lies in one piece."""
    exported = chunk.__arrow_c_stream__()
    stream = _Stream.from_address(_pointer(exported, b"arrow_array_stream"))
    array = _Array()
    if stream.get_next(ctypes.byref(stream), ctypes.byref(array)):
        msg = f"polars does not export a column of {chunk.dtype}"
        raise RuntimeError(msg)
    try:
        yield array
    finally:
        array.release(ctypes.byref(array))


class _Copy:
    """An array of Arrow's in a file, mapped: what `pl.Series` takes."""

    def __init__(self, file: IO[bytes], array: _Array, letter: bytes, bits: int) -> None:
        """Write the buffers of `array`; its first bits begin in the same byte as before."""
        self._letter, self._length = letter, array.length
        self._offset = array.offset % _BITS
        rows = self._offset + array.length
        self._nulls = array.null_count if array.buffers[0] else 0
        if self._nulls:
            _write(file, array.buffers[0], array.offset // _BITS, -(-rows // _BITS))
            file.write(bytes(-file.tell() % _ALIGNMENT))
        self._values_at = file.tell()
        skipped = (array.offset - self._offset) * bits // _BITS
        _write(file, array.buffers[1], skipped, -(-rows * bits // _BITS))
        file.flush()
        self._memory = mmap.mmap(file.fileno(), 0)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """The capsules of Arrow's interface; polars takes what is in them over."""
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        nulls = begin if self._nulls else None
        buffers = (ctypes.c_void_p * 2)(nulls, begin + self._values_at)
        number = next(_numbers)
        _held[number] = (self._memory, begin, buffers)
        self._schema = _Schema(
            format=self._letter, name=b"", flags=_NULLABLE, release=_release_schema
        )
        self._array = _Array(
            length=self._length,
            null_count=self._nulls,
            offset=self._offset,
            n_buffers=len(buffers),
            buffers=ctypes.cast(buffers, ctypes.POINTER(ctypes.c_void_p)),
            release=_release_array,
            private_data=number,
        )
        return (
            _capsule(ctypes.addressof(self._schema), b"arrow_schema", None),
            _capsule(ctypes.addressof(self._array), b"arrow_array", None),
        )


def _let_schema_go(schema: Any) -> None:
    schema.contents.release = _ReleaseSchema()


def _let_array_go(array: Any) -> None:
    _held.pop(array.contents.private_data, None)
    array.contents.release = _ReleaseArray()


_release_schema: Final = _ReleaseSchema(_let_schema_go)
_release_array: Final = _ReleaseArray(_let_array_go)


def _write(file: IO[bytes], address: int, skipped: int, size: int) -> None:
    """Write `size` bytes of memory, after those that are skipped."""
    file.write(memoryview((ctypes.c_char * size).from_address(address + skipped)))


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
        dataclasses, dicts and sequences are found too."""
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
            kept = {key: self._kept(item) for key, item in value.items()}
        elif isinstance(value, list | tuple):
            make = getattr(type(value), "_make", type(value))  # of a named tuple
            kept = make(map(self._kept, value))
        elif is_dataclass(value) and not isinstance(value, type | Scratch):
            made = [item.name for item in fields(value) if item.init]
            kept = replace(value, **{name: self._kept(getattr(value, name)) for name in made})
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
        kept = [self.kept(part) for part in parts]
        columns = []
        for name in kept[0].columns:
            columns.append(self._column(pl.concat([part[name] for part in kept], rechunk=True)))
            kept = [part.drop(name) for part in kept]
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
