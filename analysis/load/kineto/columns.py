"""What many events hold, as columns: a loop for each field, and polars for the rest. A loop that
made a row of each event took several times as long (docs/facts.md).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import count
from types import NoneType
from typing import Any, Final

import msgspec
import polars as pl

from nsysflow.analysis.load.kineto.document import (
    Event,
    frame_of,
    int_of,
    span_ns,
    thread_of,
)
from nsysflow.analysis.load.marks import decoded_or_none

_MOST_US: Final = 10**15
"""Times above are looked at one by one."""

_SPANS: Final = pl.Schema({"start_ns": pl.Int64, "end_ns": pl.Int64})


def spans_of(events: Sequence[Event]) -> pl.DataFrame:
    """`start_ns` and `end_ns` of each event.

    Raises:
        OddEvent: one has no time in microseconds.
    """
    times = [*(event.ts for event in events), *(event.dur for event in events)]
    try:
        ns = _usual_ns(b".".join(times).decode("utf-8", "replace"), len(times))
    except pl.exceptions.PolarsError:
        ns = None
    if ns is None:
        return frame_of(map(span_ns, events), _SPANS)
    start_ns, length_ns = ns[: len(events)], ns[len(events) :]
    return pl.DataFrame({"start_ns": start_ns, "end_ns": start_ns + length_ns})


def _usual_ns(joined: str, count_: int) -> pl.Series | None:
    """Times as torch writes them, microseconds with three decimals, and with a point between two of
    them; None if one is written otherwise.

    Raises:
        PolarsError: one is no number.
    """
    parts = pl.Series([joined]).str.split(".").explode()
    decimals = parts.gather_every(2, 1)
    if len(parts) != 2 * count_ or "-" in joined or not (decimals.str.len_bytes() == 3).all():
        return None
    us = parts.gather_every(2).cast(pl.Int64)
    return us * 1000 + decimals.cast(pl.Int64) if (us < _MOST_US).all() else None


class Places(dict[tuple[object, object], int]):
    """The number of each pid and tid."""

    def __missing__(self, place: tuple[object, object]) -> int:
        return self.setdefault(place, len(self))

    def column(self, events: Sequence[Event]) -> pl.Series:
        """The number of each event's place.

        Raises:
            OddEvent: one has no pid or no tid.
        """
        pids, tids = [event.pid for event in events], [event.tid for event in events]
        if not {*map(type, pids), *map(type, tids)} <= {int, str}:
            [*map(thread_of, events)]
        numbers = map(self.__getitem__, zip(pids, tids, strict=True))
        return pl.Series(list(numbers), dtype=pl.UInt32)


def ints(values: list[object]) -> pl.Series:
    """Ids or sizes, as `int_of` reads them."""
    if {*map(type, values)} <= {int, NoneType}:
        with suppress(OverflowError, TypeError):  # one is too large
            return pl.Series(values, dtype=pl.Int64)
    return pl.Series([int_of(value) for value in values], dtype=pl.Int64)


def ids(values: list[object]) -> pl.Series:
    """The same of ids, of which 0 is none."""
    numbers = ints(values)
    return numbers.set(numbers == 0, None)


def words(texts: Iterable[str], *forms: Callable[[str], str]) -> list[pl.Series]:
    """Texts as a column for each form; a form is asked once for each distinct text."""
    distinct, at = numbered(texts)
    return [pl.Series(map(form, distinct), dtype=pl.Categorical).gather(at) for form in forms]


def numbered(texts: Iterable[str]) -> tuple[list[str], list[int]]:
    """The distinct texts, and the place of each text among them."""
    numbers: dict[str, int] = defaultdict(count().__next__)
    at = list(map(numbers.__getitem__, texts))
    return list(numbers), at


def sizes(written: Sequence[msgspec.Raw]) -> pl.DataFrame:
    """`x`, `y` and `z`: sizes along three axes, as JSON; null without them."""
    texts = b"\0".join(written).decode("utf-8", "replace").split("\0")
    distinct, at = numbered(texts)
    axes = zip(*map(_three, distinct), strict=True)
    columns = dict(zip("xyz", map(ints, map(list, axes)), strict=True))
    return pl.DataFrame(columns)[at]


def _three(text: str) -> list[Any]:
    """The sizes along three axes; None without them. On AMD's GPUs Kineto writes 0 for the sizes
    of a kernel that it did not see launched."""
    read = decoded_or_none(_SIZES, text)
    known = read is not None and len(read) == 3 and 0 not in map(int_of, read)
    return read if read is not None and known else [None] * 3


_SIZES: Final = msgspec.json.Decoder(list[Any], float_hook=Decimal)
