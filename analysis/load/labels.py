"""Our words for the numbers of nsys: kinds of copies, of memory and of events.

An export has a table for each, which gives a number its label; without it they count as in all
versions so far.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import polars as pl

from nsysflow.analysis import schema

_DIRECTIONS: Final = {
    "Host-to-Device": "HtoD",
    "Device-to-Host": "DtoH",
    "Host-to-Array": "HtoA",
    "Array-to-Host": "AtoH",
    "Array-to-Array": "AtoA",
    "Array-to-Device": "AtoD",
    "Device-to-Array": "DtoA",
    "Device-to-Device": "DtoD",
    "Host-to-Host": "HtoH",
    "Peer-to-Peer": "PtoP",
    "Unified Host-to-Device": "UVM HtoD",
    "Unified Device-to-Host": "UVM DtoH",
    "Unified Device-to-Device": "UVM DtoD",
}
"""Our word for each label of a copy kind; in the order of nsys's numbers, from 1."""

_MEMORY: Final = {
    "Pageable": "pageable",
    "Pinned": "pinned",
    "Device": "device",
    "Array": "array",
    "Managed": "managed",
    "Device Static": "device",
    "Managed Static": "managed",
    "Unknown": "unknown",
}
"""Our word for each label of a memory kind; in the order of nsys's numbers, from 0."""

_MEMORY_OPERATIONS: Final = {"Allocation": "allocated", "Deallocation": "freed"}
"""Our word for each label of what happens to memory; in the order of nsys's numbers, from 0."""

_EVENTS: Final = {
    "NvtxMark": 34,
    "NvtxPushPopRange": 59,
    "NvtxStartEndRange": 60,
    "NvtxDomainCreate": 75,
}
"""The NVTX events that we read, with their numbers in all versions so far."""


def direction(column: str, enum: pl.DataFrame) -> pl.Expr:
    """The direction of a copy; `unknown` for a kind that we do not know."""
    return _labelled(column, enum, _DIRECTIONS, first=1).fill_null("unknown")


def memory_kind(column: str, enum: pl.DataFrame) -> pl.Expr:
    """`schema.MEMORY_KIND` of a column; null where the column is."""
    named = _labelled(column, enum, _MEMORY, first=0)
    unnamed = pl.when(pl.col(column).is_not_null()).then(pl.lit("unknown"))
    return pl.coalesce(named, unnamed).cast(schema.MEMORY_KIND)


def memory_change(enum: pl.DataFrame) -> pl.Expr:
    """1 for a row that allocates memory, -1 for one that frees it; null for any other."""
    sign = _labelled("memoryOperationType", enum, _MEMORY_OPERATIONS, first=0)
    return sign.replace_strict({"allocated": 1, "freed": -1}, return_dtype=pl.Int64)


def nvtx_event_types(enum: pl.DataFrame) -> dict[str, int]:
    """The number of each NVTX event that we read, by its name."""
    numbers = {text: number for number, text in _labels(enum)}
    return {name: numbers.get(name, number) for name, number in _EVENTS.items()}


def _labelled(column: str, enum: pl.DataFrame, ours: Mapping[str, str], *, first: int) -> pl.Expr:
    """Our word for each number in `column`; without labels they count from `first`."""
    numbers = dict(enumerate(ours.values(), first))
    numbers.update((number, ours[text]) for number, text in _labels(enum) if text in ours)
    return pl.col(column).replace_strict(numbers, default=None, return_dtype=pl.String)


def _labels(enum: pl.DataFrame) -> Iterator[tuple[int, str]]:
    """The numbers of a table of labels, each with its label."""
    yield from enum.select("id", pl.coalesce("label", "name")).drop_nulls().iter_rows()
