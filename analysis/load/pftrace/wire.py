"""Protobuf's wire format, read in columns: the same field of many messages at once.

A message is a stretch of bytes with fields, and a field is a key, which is its number and its wire
type, and a value. Of 1 M messages the first fields are read together, then the second ones.

Neither field numbers nor lengths are trusted: a message that they contradict is given up.

With the classes of the `perfetto` package, what a trace of rocprofv3 with 100,000 kernels and as
many calls holds (31 MB) took 6.8 s of CPU and 1.0 GB, and takes 2.9 s and 0.36 GB; our own export
of 0.25 M kernels (98 MB) took 19 s and 3.1 GB, and takes 6.4 s and 0.41 GB (medians of 3,
2026-11-27, 2 shared cores of an AMD EPYC VM, protobuf 7.36 with upb).
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO, Final, Self

import polars as pl

from nsysflow.analysis.frames.columns import repeated

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5
_FIXED_BYTES: Final = {FIXED64: 8, FIXED32: 4}

_PACKET: Final = 1 << 3 | BYTES
_BEGINS: Final = bytes([_PACKET])
"""The key of a packet in a trace, and its byte."""

_MORE: Final = 0x80
"""A byte of a varint that another one follows."""

_DIGIT: Final = 0x7F
"""The seven bits of a number in a byte of a varint."""

_VARINT_BYTES: Final = 10
_BLOCK_BYTES: Final = 1 << 23
_LARGEST_BYTES: Final = 1 << 31
"""No message of protobuf is larger."""

_MOST_FIELDS: Final = 1 << 8
"""So many fields of a message are read. An event of rocprofv3 has 30; each round of reading costs
0.3 ms, and a hostile message would have millions."""


_KEYS: Final = 1 << 32
"""Keys are smaller."""

_PLACE: Final = pl.UInt32()
"""A place in a block."""


class Malformed(Exception):
    """Bytes are not a message."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it.

    Raises:
        Malformed: it is longer than 64 bits.
        IndexError: the bytes end in it.
    """
    value = shift = 0
    while shift < 7 * _VARINT_BYTES:
        byte = data[at]
        at += 1
        value |= (byte & _DIGIT) << shift
        if byte < _MORE:
            return value & (1 << 64) - 1, at
        shift += 7
    raise Malformed


@dataclass(frozen=True)
class Field:
    """A field of one message; of bytes, the value is where they begin, and `end` where they end."""

    number: int
    wire: int
    value: int
    end: int


def fields_of(data: bytes, start: int, end: int) -> Iterator[Field]:
    """The fields of the message at a place.

    Raises:
        Malformed: it is not a message.
    """
    at = start
    while at < end:
        try:
            key, at = varint(data, at)
            wire = key & 7
            value, after = (at, at) if wire in _FIXED_BYTES else varint(data, at)
        except IndexError:
            raise Malformed from None
        if wire in _FIXED_BYTES:
            after = at + _FIXED_BYTES[wire]
            value = int.from_bytes(data[at:after], "little")
        elif wire == BYTES:
            value, after = after, after + value
        if wire not in (VARINT, BYTES, *_FIXED_BYTES) or after > end:
            raise Malformed
        yield Field(key >> 3, wire, value, after)
        at = after


_NUMBERS: Final = frozenset((3, 8, 10, 13, 41, 42, 58, 79, 87, 98))
"""Fields of a packet that are numbers; all others are bytes."""

_LONG: Final = 256
"""A file that is shorter than its first packet and this is taken for something else."""


def is_pftrace(head: bytes) -> bool:
    """Whether a file that begins with `head` is a trace of Perfetto: its first packet has the form
    of one, as far as `head` has it."""
    if head[:1] != _BEGINS:
        return False
    try:
        length, start = varint(head, 1)
        packet, at = head[start : start + length], 0
        while at < len(packet):
            key, at = varint(packet, at)
            number, wire = key >> 3, key & 7
            if not number or wire not in (VARINT, BYTES) or (wire == BYTES) == (number in _NUMBERS):
                return False
            value, at = varint(packet, at)
            at += value if wire == BYTES else 0
    except Malformed:
        return False
    except IndexError:
        return len(head) >= _LONG
    if len(packet) < length:
        return len(head) >= _LONG
    return 0 < at == length and head[start + length :][:1] in (b"", _BEGINS)


@dataclass
class PacketFile:
    """The packets of a trace.

    Attributes:
        file: the trace.
        left_bytes: how many of its last bytes are no whole packet; known after the last block.
    """

    file: BinaryIO
    left_bytes: int = 0

    def blocks(self) -> Iterator["Block"]:
        """The whole packets, some 8 MB at a time: larger columns fall out of the CPU's caches."""
        left, rest = self.file.seek(0, os.SEEK_END), b""
        self.file.seek(0)
        wanted: int | None = 0
        while left and wanted is not None:
            data = rest + self.file.read(min(left, max(_BLOCK_BYTES, wanted)))
            left -= len(data) - len(rest)
            heads, wanted = _heads(data)
            block = Block.of(data, heads)
            if len(block.packets) < len(heads):
                wanted = None
            yield block
            rest = data[block.end :]
        self.left_bytes = len(rest) + left


def _heads(data: bytes) -> tuple[list[int], int | None]:
    """Where the whole packets in `data` begin, if they are packets, and how many more bytes the
    next one needs; None where it is none."""
    heads: list[int] = []
    add = heads.append
    at, size = 0, len(data)
    try:
        while at < size:
            length = data[at + 1]
            if length < _MORE:
                behind = at + 2 + length
            elif (digit := data[at + 2]) < _MORE:
                behind = at + 3 + (length & _DIGIT) + (digit << 7)
            else:
                length, behind = varint(data, at + 1)
                behind += length
            if behind > size:
                possible = data[at] == _PACKET and length <= _LARGEST_BYTES
                return heads, behind - size if possible else None
            add(at)
            at = behind
    except IndexError:
        pass
    except Malformed:
        return heads, None
    return heads, 0


FIELDS: Final = pl.Schema(
    {
        "row": _PLACE,
        "number": pl.UInt32(),
        "wire": pl.UInt32(),
        "value": pl.UInt64(),
        "start": _PLACE,
        "end": _PLACE,
    }
)
"""One row per field of many messages, those of a message in its order: the message's number, the
field's number and wire type, and its value, which lies from `start` to `end`. The value of bytes is
how many they are."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A part of a trace.

    Attributes:
        data: its bytes.
        packets: the `start` and `end` of its packets.
    """

    data: bytes
    packets: pl.DataFrame
    _column: pl.Series

    @classmethod
    def of(cls, data: bytes, heads: list[int]) -> Self:
        """The part with these bytes, in which packets begin at `heads`, up to the first that is
        none. Behind the last byte lie zeros, which end any varint."""
        padded = pl.Series([data + bytes(2 * _VARINT_BYTES)], dtype=pl.Binary)
        column = padded.cast(pl.List(pl.UInt8)).explode()
        block = cls(data=data, packets=pl.DataFrame(), _column=column)
        at = pl.Series(heads, dtype=_PLACE)
        wrong = (column[at] != _PACKET).arg_true()
        if len(wrong):
            at = at.head(wrong[0])
        length, start = block._varints(at + 1)
        end = start + length.cast(_PLACE)
        return replace(block, packets=pl.DataFrame({"start": start, "end": end}))

    @property
    def end(self) -> int:
        """Where its last packet ends."""
        return int(self.packets["end"][-1]) if len(self.packets) else 0

    def fields(self, messages: pl.DataFrame, most: int = _MOST_FIELDS) -> pl.DataFrame:
        """`FIELDS` of the messages with these `row`, `start` and `end`. Of one that is malformed
        there are the fields before that place; of one with more than `most`, the first ones."""
        rounds = [FIELDS.to_frame()]
        row, at, limit = (messages[name] for name in ("row", "start", "end"))
        while len(at) and len(rounds) <= most:
            row, at, limit = _filtered(at < limit, row, at, limit)
            rounds.append(self._next_fields(row, at, limit))
            row, limit = rounds[-1]["row"], rounds[-1]["limit"]
            at = rounds[-1]["end"]
            rounds[-1] = rounds[-1].drop("limit")
        return pl.concat(rounds)

    def _next_fields(self, row: pl.Series, at: pl.Series, limit: pl.Series) -> pl.DataFrame:
        """`FIELDS` that begin at these places, and the `limit` at which its message ends."""
        key, at = self._varints(at)
        wire = (key & 7).cast(pl.UInt32)
        value, start = self._varints(at)
        is_bytes, fixed = wire == BYTES, (wire == FIXED64) | (wire == FIXED32)
        end = start
        if fixed.any():
            rows = fixed.arg_true()
            of_fixed, behind = self._fixed(at[rows], wire[rows])
            start = start.scatter(rows, at[rows])
            value, end = value.scatter(rows, of_fixed), end.clone().scatter(rows, behind)
        known = is_bytes | fixed | (wire == VARINT)
        room = (limit - end).cast(pl.UInt64)
        fits = known & (end <= limit) & ((value <= room) | ~is_bytes) & (key < _KEYS)
        end = end + ((value & _KEYS - 1) * is_bytes.cast(pl.UInt64)).cast(_PLACE)
        number = (key // 8 & _KEYS - 1).cast(_PLACE)
        columns = _filtered(fits, row, number, wire, value, start, end, limit)
        names = (*FIELDS, "limit")
        return pl.DataFrame([of.alias(name) for name, of in zip(names, columns, strict=True)])

    def _varints(self, at: pl.Series) -> tuple[pl.Series, pl.Series]:
        """The numbers at these places, and the places behind them."""
        byte = self._column[at]
        value = (byte & _DIGIT).cast(pl.UInt64)
        at, more = at + 1, byte >= _MORE
        zero = repeated(len(self.data) + _VARINT_BYTES, 1, _PLACE)
        for digit in range(1, _VARINT_BYTES):
            if not more.any():
                break
            byte = self._column[at.zip_with(more, zero.new_from_index(0, len(at)))]
            value = value + (byte & _DIGIT).cast(pl.UInt64) * (1 << 7 * digit)
            at, more = at + more.cast(_PLACE), byte >= _MORE
        return value, at

    def _fixed(self, at: pl.Series, wire: pl.Series) -> tuple[pl.Series, pl.Series]:
        """The numbers of 8 or 4 bytes at these places, and the places behind them."""
        size = (wire == FIXED64).cast(_PLACE) * 4 + 4
        zero = repeated(len(self.data) + _VARINT_BYTES, len(at), _PLACE)
        value = repeated(0, len(at), pl.UInt64)
        for digit in range(8):
            byte = self._column[(at + digit).zip_with(size > digit, zero)]
            value = value + byte.cast(pl.UInt64) * (1 << 8 * digit)
        return value, at + size

    def contents(self, places: pl.DataFrame) -> list[bytes]:
        """What lies from each `start` to its `end`."""
        data, starts, ends = self.data, places["start"].to_list(), places["end"].to_list()
        return [data[start:end] for start, end in zip(starts, ends, strict=True)]


def _filtered(keep: pl.Series, *columns: pl.Series) -> tuple[pl.Series, ...]:
    return columns if keep.all() else tuple(column.filter(keep) for column in columns)
