"""Blocks of text cells, and how they are set in columns.

The terminal page and summary.md show the same `Block`s; only the setting differs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

_SEPARATOR = "  "
_NARROWEST = 8
"""A flexible column is never cut below this; the line runs over instead."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column: `right` for numbers; only a `flexible` one may be shortened."""

    head: str
    right: bool = False
    flexible: bool = False


@dataclass(frozen=True, kw_only=True)
class Block:
    """A titled table of ready-made cells.

    Attributes:
        title: what the table answers.
        caption: how to read it; may be empty.
        columns: one for each cell of a row.
        rows: the cells, top to bottom.
        more: lines below it, e.g. what was left out.
    """

    title: str
    caption: str = ""
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    more: tuple[str, ...] = ()


def words(head: str) -> Column:
    """A column of names, shortened in the middle where the line is too narrow."""
    return Column(head=head, flexible=True)


def figure(head: str) -> Column:
    """A column of numbers: to the right, never shortened."""
    return Column(head=head, right=True)


def printable(text: str) -> str:
    """Names come from the traced program: line breaks and escapes must not reach a terminal."""
    return "".join(letter if letter.isprintable() else "·" for letter in text)


def shorten(text: str, width: int) -> str:
    """Cut from the middle, since paths and kernel names differ at both ends."""
    if cell_len(text) <= width:
        return text
    tail = width // 2
    head = width - 1 - tail
    # set_cell_size pads where a double-width letter would be cut in two
    return set_cell_size(text, head) + "…" + set_cell_size(text[::-1], tail)[::-1]


def set_in_columns(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], width: int | None
) -> list[str]:
    """The head and the rows as lines of at most `width` cells where names can give way.

    Args:
        columns: how to set each cell.
        rows: the cells.
        width: the line's length; None never shortens.
    """
    table = [[column.head for column in columns], *([printable(c) for c in row] for row in rows)]
    widths = [max(map(cell_len, cells)) for cells in zip(*table, strict=True)]
    if width is not None:
        widths = _fitted(columns, widths, width)
    return [_line(columns, row, widths) for row in table]


def _fitted(columns: Sequence[Column], natural: Sequence[int], width: int) -> list[int]:
    widths = list(natural)
    flexible = [index for index, column in enumerate(columns) if column.flexible]
    surplus = sum(widths) + len(_SEPARATOR) * (len(widths) - 1) - width
    while surplus > 0 and flexible:
        widest = max(flexible, key=lambda index: widths[index])
        if widths[widest] <= max(_NARROWEST, len(columns[widest].head)):
            break
        widths[widest] -= 1
        surplus -= 1
    return widths


def _line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    cells = []
    for column, cell, width in zip(columns, row, widths, strict=True):
        text = shorten(cell, width)
        padding = " " * (width - cell_len(text))
        cells.append(padding + text if column.right else text + padding)
    return _SEPARATOR.join(cells).rstrip()
