"""One table as people read it: in human units, with the columns that matter most."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import polars as pl
from rich.cells import cell_len

from nsysflow.base import units
from nsysflow.report.layout import Block, figure, words

Unit: TypeAlias = Literal[
    "instant", "duration", "percent", "size", "bytes_per_s", "flops", "flops_per_s"
]
"""What numbers count, so how they are shown."""

MOST_COLUMNS: Final = 7
"""More columns than these are hard to read side by side."""

_MEASURED_ROWS: Final = 40
"""Rows that say how wide a column is."""

_READABLE: Final = 25
"""A name is still recognised when it is shortened to this width."""

_GAP: Final = 2
"""Between two columns, and in front of the first."""

_INSTANTS: Final = ("start_ns", "end_ns")

_SAME_FOR_ALL: Final = ("report", "process", "device", "steady")
"""Columns that say nothing where every row has the same value."""

_HEADS: Final = {"induced_idle_ns": "idle behind it", "copy_label": "copy", "path": "phase"}
"""Headings that are not the column's name without its unit."""


def readable_block(table: pl.DataFrame, title: str) -> Block:
    """A table in human units, without its empty columns and a `report` that is always the same."""
    columns = [
        series
        for series in table
        if series.null_count() < len(series)
        and not (series.name == "report" and _is_constant(series))
    ]
    return Block(
        title=title,
        columns=tuple(
            figure(head(series.name)) if series.dtype.is_numeric() else words(head(series.name))
            for series in columns
        ),
        rows=tuple(zip(*(_cells(series) for series in columns), strict=True)),
    )


def columns_that_fit(table: pl.DataFrame, by_weight: Sequence[str], width: int) -> list[str]:
    """The columns to show in a line of `width`, in the table's order: at most `MOST_COLUMNS`.

    Args:
        table: the rows to show.
        by_weight: the columns worth showing, most important first.
        width: cells of a line.
    """
    chosen: list[str] = []
    left = width
    for name in by_weight:
        if not _has_information(table[name]):
            continue
        needed = _least_width(table[name].head(_MEASURED_ROWS)) + _GAP
        if not chosen or (needed <= left and len(chosen) < MOST_COLUMNS):
            chosen.append(name)
            left -= needed
    return [name for name in table.columns if name in chosen]


def columns_with_values(table: pl.DataFrame) -> list[str]:
    """The columns that hold a value in some row."""
    return [series.name for series in table if series.null_count() < len(series)]


def head(name: str) -> str:
    """The heading of a column: its name without the unit, which the cells carry."""
    if name in _HEADS:
        return _HEADS[name]
    return name.removesuffix("_ns").removesuffix("_pct").replace("_", " ")


def _has_information(series: pl.Series) -> bool:
    """Whether a column says anything: some row has a value, and a number is not always 0."""
    if series.null_count() == len(series) or (
        series.name in _SAME_FOR_ALL and _is_constant(series)
    ):
        return False
    return not (
        series.dtype.is_numeric() and series.name.endswith("_ns") and not (series != 0).any()
    )


def _least_width(series: pl.Series) -> int:
    """How narrow a column may become: numbers stay whole, names only recognisable."""
    longest = max(map(cell_len, (head(series.name), *_cells(series))))
    return longest if series.dtype.is_numeric() else min(longest, _READABLE)


def _is_constant(series: pl.Series) -> bool:
    return series.n_unique() == 1


def _cells(series: pl.Series) -> Iterator[str]:
    values = series.cast(pl.String) if series.dtype in (pl.Enum, pl.Categorical) else series
    for value in values:
        yield _cell(series.name, value)


def unit_of(name: str) -> Unit | None:
    """What the numbers of a column count, as its name says; None for plain ones and for words."""
    if name in _INSTANTS:
        return "instant"
    if name.endswith("_ns"):
        return "duration"
    if name.endswith("_pct"):
        return "percent"
    if name in ("bytes", "shared_bytes"):
        return "size"
    units_at_end: tuple[Unit, ...] = ("flops", "flops_per_s", "bytes_per_s")
    return next((unit for unit in units_at_end if name.endswith(unit)), None)


_SHOWN: Final[Mapping[Unit, Callable[[Any], str]]] = {
    "instant": units.instant,
    "duration": units.duration,
    "percent": units.percent,
    "size": units.size,
    "bytes_per_s": lambda value: f"{units.size(round(value))}/s",
    "flops": units.flops,
    "flops_per_s": lambda value: f"{units.flops(value)}/s",
}


def _cell(name: str, value: Any) -> str:
    """One value by its column's unit."""
    if value is None:
        return ""
    if unit := unit_of(name):
        return _SHOWN[unit](value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return units.significant(value)
    return str(value)
