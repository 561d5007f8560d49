"""What many events hold, as columns: a loop for each field, and polars for the rest. A loop that
made a row of each event took several times as long (docs/facts.md).
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import NoneType
from typing import Final

import polars as pl

from nsysflow.analysis.load.kineto.document import (
    Event,
    as_odd_events,
    frame_of,
    int_of,
    span_ns,
)
from nsysflow.analysis.load.kineto.running import ThreadKeys
from nsysflow.analysis.schema import ID_MASK

_MOST: Final = 1 << 16
"""So many events become columns at a time: their arguments take ten times the memory of these."""

_USUAL: Final = r"^[0-9]{1,15}\.[0-9]{3}$"
"""A time as torch writes it: microseconds with three decimals."""

_SPANS: Final = pl.Schema({"start_ns": pl.Int64, "end_ns": pl.Int64})
_THREADS: Final = pl.Schema({"process": pl.Int64, "thread": pl.Int64})


def in_parts(
    events: Sequence[Event], columns: pl.Schema, rows: Callable[[Sequence[Event]], pl.DataFrame]
) -> pl.DataFrame:
    """The rows of the events in the given schema, made of some events at a time. A number that does
    not fit its column is null."""
    made = [columns.to_frame()]
    for at in range(0, len(events), _MOST):
        part = rows(events[at : at + _MOST]).select(*columns)
        made.append(part.cast(columns, strict=False))
    return pl.concat(made)


def spans_of(events: Sequence[Event]) -> pl.DataFrame:
    """`start_ns` and `end_ns` of each event.

    Raises:
        OddEvent: one has no time in microseconds.
    """
    start, length = (
        pl.Series([b"\n".join(times).decode("utf-8", "replace")]).str.split("\n").explode()
        for times in ([event.ts for event in events], [event.dur for event in events])
    )
    usual = start.str.contains(_USUAL).all() and length.str.contains(_USUAL).all()
    if not usual or not len(start) == len(length) == len(events):
        return frame_of(map(span_ns, events), _SPANS)
    start_ns, length_ns = (
        times.str.replace(".", "", literal=True).cast(pl.Int64) for times in (start, length)
    )
    return pl.DataFrame({"start_ns": start_ns, "end_ns": start_ns + length_ns})


def threads_of(events: Sequence[Event], keys: ThreadKeys) -> pl.DataFrame:
    """`process` and `thread` of each event of the host; null where the pid is no number."""
    with as_odd_events():
        threads = pl.Series([keys.get((e.pid, e.tid)) for e in events], dtype=pl.Int64)
    return pl.DataFrame({"process": threads & ~ID_MASK, "thread": threads})


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
    numbers: dict[str, int] = {}
    at = [numbers.setdefault(text, len(numbers)) for text in texts]
    return [pl.Series(map(form, numbers), dtype=pl.Categorical).gather(at) for form in forms]
