"""Columns of numbers as text that a page carries: typed arrays, byte-shuffled, deflated, base64."""

import sys
import zlib
from array import array
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
import polars as pl

from nsysflow.analysis.frames.columns import greatest, scatter_table
from nsysflow.analysis.schema import CAUSE
from nsysflow.analysis.tracks.tracks import Tracks

Type = Literal["u8", "u16", "u32", "i32", "f64"]

_UNSIGNED: Final[dict[Type, tuple[int, int]]] = {
    "u8": (1, 2**8),
    "u16": (2, 2**16),
    "u32": (4, 2**32),
}
"""How many bytes a number of that type takes, and what is more than it holds."""

_LEVEL: Final = 6
"""Of zlib: the next levels take twice the time for 1 % less."""


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A column as bytes.

    Attributes:
        type: of its numbers.
        delta: whether these are differences: the column is their running sum.
        data: the shuffled bytes.
        jumps: row and difference where that is no `i32`; there the bytes have 0. So one idle
            minute, or the way back to the start of the next lane, does not double a column.
    """

    type: Type
    delta: bool
    data: bytes
    jumps: tuple[tuple[int, int], ...] = ()


def packed(numbers: pl.Series) -> Packed | None:
    """Numbers that are 0 or more, as the smallest type that holds them; None where all are 0."""
    most = _extreme(numbers.max())
    if most == 0:
        return None
    for kind, (size, past) in _UNSIGNED.items():
        if most < past:
            return Packed(type=kind, delta=False, data=_shuffled(numbers, size))
    return Packed(type="f64", delta=False, data=_shuffled_floats(numbers))


def packed_deltas(numbers: pl.Series) -> Packed | None:
    """The differences of numbers to the ones before, the first to 0; None where all are 0."""
    numbers = numbers.cast(pl.Int64)
    deltas = numbers - numbers.shift(1, fill_value=0)
    if not (deltas != 0).any():
        return None
    far = (deltas < -(2**31)) | (deltas >= 2**31)
    rows = far.arg_true()
    jumps = tuple(zip(rows, deltas[rows], strict=True))
    near = deltas.scatter(rows, 0)
    return Packed(type="i32", delta=True, data=_shuffled(near, 4), jumps=jumps)


def _extreme(value: object) -> int:
    return value if isinstance(value, int) else 0


def _shuffled(numbers: pl.Series, size: int) -> bytes:
    """The lowest `size` bytes of whole numbers."""
    value = pl.lit(numbers)
    planes = [(value // 256**k).cast(pl.UInt8, wrap_numerical=True) for k in range(size)]
    return _bytes(pl.concat(pl.select(plane).to_series() for plane in planes))


def _bytes(numbers: pl.Series) -> bytes:
    return bytes(numbers.implode().cast(pl.Binary).item())


def _shuffled_floats(numbers: pl.Series) -> bytes:
    raw = array("d", numbers.to_list())
    if sys.byteorder == "big":
        raw.byteswap()
    data = raw.tobytes()
    return b"".join(data[k::8] for k in range(8))


class Blobs:
    """The blobs of a page: numbered, deflated by threads while more are made."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._made: list[Future[bytes]] = []

    def add(self, data: bytes) -> str:
        """The name of a new blob."""
        self._made.append(self._pool.submit(deflated, data))
        return f"b{len(self._made) - 1}"

    def column(self, column: Packed) -> dict[str, Any]:
        """What the page reads of a column."""
        about = {"blob": self.add(column.data), "type": column.type, "delta": column.delta}
        return about | ({"jumps": column.jumps} if column.jumps else {})

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Each blob's name and base64 text, in order."""
        for number, made in enumerate(self._made):
            yield f"b{number}", made.result()


def deflated(data: bytes) -> bytes:
    """Bytes as the page carries them."""
    return b64encode(zlib.compress(data, _LEVEL))


_TABLE_OF: Final = {
    "steps": "steps",
    "phases": "ranges",
    "calls": "calls",
    "host_stack": "host_stacks",
    "stack": "stack_frames",
    "profiler": "profiler",
    "worker": "batches",
    "stream": "operations",
    "gaps": "gaps",
    "counter": "counters",
}
"""The table that holds the rows of each kind of lane."""


NAMELESS: Final = "(nameless)"
"""What stands for a name that the report lacks."""


class _Names:
    """The strings of a report, each once; a kernel's short name once for each full name."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.full: list[str | None] = []

    def named(self, names: pl.Series) -> pl.Series:
        """The number of each name, from 0."""
        numbers = self.numbers(names)
        if numbers.null_count() == 0:
            return numbers
        self.texts.append(NAMELESS)
        self.full.append(None)
        return numbers.fill_null(len(self.texts) - 1)

    def numbers(self, names: pl.Series) -> pl.Series:
        """The number of each name, from 0; null for null."""
        distinct = names.unique(maintain_order=True).drop_nulls()
        first = len(self.texts)
        self.texts += distinct.cast(pl.String).to_list()
        self.full += [None] * len(distinct)
        codes = names.to_physical()
        mine = distinct.to_physical()
        number = pl.int_range(first, first + len(distinct), dtype=pl.UInt32, eager=True)
        return scatter_table(greatest(mine) + 1, mine, number)[codes]

    def kernels(self, operations: pl.DataFrame) -> pl.Series:
        """The number of each operation's `name` and `full_name`."""
        key = ["name", "full_name"]
        distinct = operations.select(key).unique(maintain_order=True)
        texts = (distinct[column].cast(pl.String).fill_null(NAMELESS) for column in key)
        short, full = (each.to_list() for each in texts)
        number = pl.int_range(len(distinct), dtype=pl.UInt32, eager=True) + len(self.texts)
        self.texts += short
        self.full += [
            long if long != name else None for name, long in zip(short, full, strict=True)
        ]
        known = distinct.with_columns(number.alias("number"))
        return operations.select(key).join(
            known, on=key, how="left", maintain_order="left", nulls_equal=True
        )["number"]


class Columns:
    """One report's lanes and columns, times counted from `zero_ns`."""

    def __init__(self, tracks: Tracks, zero_ns: int, classes: Sequence[str], blobs: Blobs) -> None:
        self.tracks, self.zero_ns, self.classes, self.blobs = tracks, zero_ns, classes, blobs
        self.names = _Names()

    def tables(self) -> dict[str, Any]:
        """The columns of each table, by its name."""
        return {
            "operations": self._operations(),
            "calls": self._calls(),
            "ranges": self._slices(self.tracks.ranges),
            "steps": self._steps(),
            "gaps": self._gaps(),
            "profiler": self._slices(self.tracks.profiler),
            "batches": self._slices(self.tracks.batches),
            "host_stacks": self._slices(self.tracks.host_stacks),
            "stack_frames": self._stack_frames(),
            "counters": self._counters(),
        }

    def strings(self) -> dict[str, str]:
        """The blobs of the names that `tables` numbered."""
        return {
            "strings": self.blobs.add(msgspec.json.encode(self.names.texts)),
            "full_names": self.blobs.add(msgspec.json.encode(self.names.full)),
        }

    def lanes(self) -> list[dict[str, Any]]:
        """The lanes, each with the rows of its table that lie on it."""
        first = {}
        for table in _TABLE_OF.values():
            lane = getattr(self.tracks, table)["lane"]
            runs = lane.rle().struct.unnest() if len(lane) else None
            at = 0
            for count, number in runs.rows() if runs is not None else ():
                first[number] = (at, count)
                at += count
        found = []
        for row in self.tracks.lanes.iter_rows(named=True):
            number = row.pop("lane")
            at, count = first[number]
            found.append({**row, "first": at, "count": count})
        return found

    def _columns(self, n: int, columns: Mapping[str, Packed | None]) -> dict[str, Any]:
        there = {name: self.blobs.column(each) for name, each in columns.items() if each}
        return {"n": n, "columns": there}

    def _times(self, rows: pl.DataFrame) -> dict[str, Packed | None]:
        return {
            "start": packed_deltas(rows["start_ns"] - self.zero_ns),
            "duration": packed(rows["end_ns"] - rows["start_ns"]),
        }

    def _slices(self, rows: pl.DataFrame) -> dict[str, Any]:
        columns = self._times(rows) | {"name": packed(self.names.named(rows["name"]))}
        if "depth" in rows.columns:
            columns["depth"] = packed(rows["depth"])
        return self._columns(len(rows), columns)

    def _operations(self) -> dict[str, Any]:
        rows = self.tracks.operations
        columns = {
            **self._times(rows),
            "name": packed(self.names.kernels(rows)),
            "class": packed(self._class(rows["class"])),
            "call": packed_deltas(_or_zero(rows["call"])),
            "phase": packed(_or_zero(rows["phase"])),
            "depth": packed(rows["depth"]),
            "bytes": packed(rows["bytes"].fill_null(0)),
        }
        return self._columns(len(rows), columns)

    def _class(self, classes: pl.Series) -> pl.Series:
        distinct = classes.unique()
        number = distinct.cast(pl.String).cast(pl.Enum(self.classes)).to_physical()
        codes = distinct.to_physical()
        return scatter_table(greatest(codes) + 1, codes, number)[classes.to_physical()]

    def _calls(self) -> dict[str, Any]:
        rows = self.tracks.calls
        columns = {
            **self._times(rows),
            "name": packed(self.names.named(rows["name"])),
            "class": packed(rows["class"].to_physical()),
            "source": packed(_or_zero(self.names.numbers(rows["source"]))),
            "depth": packed(rows["depth"]),
        }
        return self._columns(len(rows), columns)

    def _steps(self) -> dict[str, Any]:
        rows = self.tracks.steps
        columns = {
            **self._times(rows),
            "step": packed(rows["step"]),
            "kind": packed(rows["kind"].to_physical()),
            "device": packed(rows["device"]),
        }
        return self._columns(len(rows), columns)

    def _gaps(self) -> dict[str, Any]:
        rows = self.tracks.gaps
        columns = {
            "prev_op": packed_deltas(rows["prev_op"]),
            "next_op": packed_deltas(rows["next_op"]),
            "cause": packed(rows["cause"].to_physical()),
            "culprit_call": packed_deltas(_or_zero(rows["culprit_call"])),
            "culprit_op": packed(_or_zero(rows["culprit_op"])),
            "phase": packed(_or_zero(rows["phase"])),
            **_parts(rows),
        }
        return self._columns(len(rows), columns)

    def _stack_frames(self) -> dict[str, Any]:
        """Their times are those of the stretches they join, from `first` on."""
        rows = self.tracks.stack_frames
        columns = {
            "first": packed_deltas(rows["first"]),
            "stretches": packed(rows["stretches"]),
            "depth": packed(rows["depth"]),
            "name": packed(self.names.numbers(rows["name"])),
            "own": packed(rows["own"].cast(pl.UInt8)),
        }
        return self._columns(len(rows), columns)

    def _counters(self) -> dict[str, Any]:
        rows = self.tracks.counters
        columns = {
            "start": packed_deltas(rows["time_ns"] - self.zero_ns),
            "value": packed(rows["value_pct"]),
        }
        return self._columns(len(rows), columns)


def _or_zero(rows: pl.Series) -> pl.Series:
    """Row numbers from 1; 0 for none."""
    return (rows.cast(pl.Int64) + 1).fill_null(0)


def _parts(gaps: pl.DataFrame) -> dict[str, Packed | None]:
    """The causes of each gap but its largest: how many, then flat which and how much."""
    found = [
        gaps.select(pl.col("cause") != name, pl.col(f"{name}_ns").alias("ns"))
        .with_row_index("gap")
        .filter("cause", pl.col("ns") > 0)
        .select("gap", "ns", pl.lit(number, pl.UInt8).alias("number"))
        for number, name in enumerate(CAUSE.categories)
    ]
    flat = pl.concat(found).sort("gap", "number")
    counted = flat.group_by("gap").len()
    count = scatter_table(len(gaps), counted["gap"], counted["len"]).fill_null(0)
    return {
        "parts": packed(count),
        "part_cause": packed(flat["number"]),
        "part_ns": packed(flat["ns"]),
    }
