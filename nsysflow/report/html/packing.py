"""Columns of numbers as text that a page carries: typed arrays, byte-shuffled, deflated, base64.

Of an array, all first bytes come first, then all second bytes, …: bytes of the same weight are
alike, so they deflate better (little endian; a third less for the starts of a million kernels).
"""

import sys
import zlib
from array import array
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Literal

import polars as pl

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
    jumps = tuple(zip(rows, deltas.gather(rows), strict=True))
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
