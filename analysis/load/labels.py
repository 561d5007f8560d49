"""nsys's enumerations in our words: by the export's own labels, by number where it has none."""

from collections.abc import Mapping
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
"""nsys's label of a copy kind, and ours; by number (1, 2, …) where an export has no labels."""

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
"""nsys's label of a memory kind, and ours; by number (0, 1, …) where an export has no labels."""

_EVENTS: Final = {
    "NvtxMark": 34,
    "NvtxPushPopRange": 59,
    "NvtxStartEndRange": 60,
    "NvtxDomainCreate": 75,
}


def direction(column: str, enum: pl.DataFrame) -> pl.Expr:
    """The direction of a copy, by its kind; `unknown` for a kind without a name."""
    return _labelled(column, enum, _DIRECTIONS, first=1).fill_null("unknown")


def memory_kind(column: str, enum: pl.DataFrame) -> pl.Expr:
    """A kind of memory as `schema.MEMORY_KIND`; null where the export has none."""
    named = _labelled(column, enum, _MEMORY, first=0)
    unnamed = pl.when(pl.col(column).is_not_null()).then(pl.lit("unknown"))
    return pl.coalesce(named, unnamed).cast(schema.MEMORY_KIND)


def nvtx_event_types(enum: pl.DataFrame) -> dict[str, int]:
    """The numbers of the NVTX events that we read, by name."""
    label = pl.coalesce("label", "name")
    found = {text: number for number, text in enum.select("id", label).iter_rows()}
    return {name: found.get(name, number) for name, number in _EVENTS.items()}


def _labelled(column: str, enum: pl.DataFrame, ours: Mapping[str, str], *, first: int) -> pl.Expr:
    """Our word for the numbers in `column`, by nsys's label, or by number from `first` on."""
    numbers = dict(enumerate(ours.values(), first))
    label = pl.coalesce("label", "name")
    numbers.update(
        (number, ours[text])
        for number, text in enum.select("id", label).iter_rows()
        if text in ours
    )
    return pl.col(column).replace_strict(numbers, default=None, return_dtype=pl.String)
