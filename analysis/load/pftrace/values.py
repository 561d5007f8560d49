"""Texts and values in a trace of Perfetto, each decoded once: most come again and again."""

from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Any, Final

import msgspec
import polars as pl

from nsysflow.analysis.load.pftrace.names import text_of
from nsysflow.analysis.load.pftrace.wire import BYTES, Field, Malformed, fields_of

ARGUMENT_NAME: Final = 10
"""The field of an argument that names it by a text."""


class Texts(dict[bytes, str]):
    """Texts by their bytes; each is decoded once."""

    def __missing__(self, written: bytes) -> str:
        self[written] = text = written.decode("utf-8", "replace")
        return text

    def of(self, written: Iterable[bytes]) -> pl.Series:
        """Texts as categories."""
        return pl.Series([self[text] for text in written], dtype=pl.String).cast(pl.Categorical)


class JsonValues(dict[bytes, str]):
    """Arguments as JSON by the bytes of their messages; each is decoded once."""

    def __missing__(self, written: bytes) -> str:
        try:
            value = _value(written, 0, len(written), 0)
        except Malformed:
            value = None
        self[written] = text = msgspec.json.encode(value).decode()
        return text

    def of(self, written: Iterable[bytes]) -> pl.Series:
        """The values of arguments as JSON."""
        return pl.Series([self[text] for text in written], dtype=pl.String)


_DEEPEST: Final = 32


def _value(data: bytes, start: int, end: int, depth: int) -> Any:
    """The value of an argument, whose message lies there. One without any is an empty list, of
    which nothing is written.

    Raises:
        Malformed: it is no message, or nested too deeply.
    """
    if depth > _DEEPEST:
        raise Malformed
    entries: dict[str, Any] = {}
    elements: list[Any] = []
    value: Any = elements
    for part in fields_of(data, start, end):
        inner = (data, part.value, part.end, depth + 1)
        if part.number == _ELEMENT and part.wire == BYTES:
            elements.append(_value(*inner))
            value = elements
        elif part.number == _ENTRY and part.wire == BYTES:
            entries[_name(*inner[:3])] = _value(*inner)
            value = entries
        elif part.number in _PLAIN:
            value = _PLAIN[part.number](data, part)
    return value


_DOUBLE: Final = Struct("<d")
_ENTRY: Final = 11
_ELEMENT: Final = 12


def _name(data: bytes, start: int, end: int) -> str:
    """The name of an argument, if it has one as a text."""
    names = [part for part in fields_of(data, start, end) if part.number == ARGUMENT_NAME]
    return text_of(data, names[-1]) if names else ""


def _signed_value(data: bytes, part: Field) -> int:
    return part.value - (1 << 64 if part.value >> 63 else 0)


_PLAIN: Final[Mapping[int, Callable[[bytes, Field], Any]]] = {
    2: lambda _, part: bool(part.value),
    3: lambda _, part: part.value,
    4: _signed_value,
    5: lambda _, part: _DOUBLE.unpack(part.value.to_bytes(8, "little"))[0],
    6: text_of,
    7: lambda _, part: part.value,
}
"""How values are read that are no lists and no objects."""
