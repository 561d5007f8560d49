"""Blocks of text cells, and how they are set in columns.

The terminal page and summary.md show the same `Block`s and differ only in how they set them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rich.cells import cell_len, set_cell_size

from nsysflow.base.names import printable

_SEPARATOR = "  "
_NARROWEST = 8
"""A flexible column is never narrower than this; the line becomes too long instead."""

_READABLE = 20
"""A flexible column is not narrower than this while a spare column can be left out."""


BAR_LETTERS: Final = "█▓▒░▚"
"""What parts of a bar are drawn with, so that they differ without colour."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column.

    Attributes:
        head: its heading.
        right: set to the right, as numbers are.
        flexible: its cells may be shortened.
        spare: may be left out where the line is too narrow for all.
        drawn: its cells are bars, for a terminal only.
        letter: what stands for it in a bar.
    """

    head: str
    right: bool = False
    flexible: bool = False
    spare: bool = False
    drawn: bool = False
    letter: str = ""

    @property
    def titled(self) -> str:
        """The heading with the letter in front."""
        return f"{self.letter} {self.head}" if self.letter else self.head


@dataclass(frozen=True, kw_only=True)
class Block:
    """A titled table of ready-made cells.

    Attributes:
        title: its heading, a noun.
        caption: how to read it; may be empty.
        columns: one for each cell of a row.
        rows: the cells, top to bottom.
        more: lines below it.
        rest: how many rows were left out and how to see them; empty where none is.
    """

    title: str
    caption: str = ""
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    more: tuple[str, ...] = ()
    rest: str = ""


def bar(parts: Sequence[int], width: int) -> str:
    """The parts in proportion, one letter of `BAR_LETTERS` each. Rounding their running sum keeps
    the width."""
    total = sum(parts)
    edges = [
        round(width * sum(parts[: index + 1]) / total) if total else 0
        for index in range(len(parts))
    ]
    cells = [edge - before for edge, before in zip(edges, [0, *edges[:-1]], strict=True)]
    return "".join(letter * count for letter, count in zip(BAR_LETTERS, cells, strict=False))


def without_empty_columns(block: Block) -> Block:
    """The block without the columns whose cells are all empty."""
    cells = zip(*block.rows, strict=True)
    return _with_columns(block, [index for index, column in enumerate(cells) if any(column)])


def without_bars(block: Block) -> Block:
    """The block without bars."""
    drawn = str.maketrans("", "", BAR_LETTERS)
    more = tuple(" ".join(line.translate(drawn).split()) for line in block.more)
    kept = [at for at, each in enumerate(block.columns) if not each.drawn]
    return replace(_with_columns(block, kept), more=more)


def _with_columns(block: Block, kept: Sequence[int]) -> Block:
    return replace(
        block,
        columns=tuple(block.columns[index] for index in kept),
        rows=tuple(tuple(row[index] for index in kept) for row in block.rows),
    )


def words(head: str, *, spare: bool = False) -> Column:
    """A column of names, which are shortened where the line is too narrow."""
    return Column(head=head, flexible=True, spare=spare)


def figure(head: str, *, spare: bool = False) -> Column:
    """A column of numbers, set to the right and never shortened."""
    return Column(head=head, right=True, spare=spare)


def shorten(text: str, width: int) -> str:
    """The text in `width` cells. A path is cut at the front, another name in the middle, as kernel
    names differ at both ends."""
    return (
        text
        if cell_len(text) <= width
        else _with_ellipsis(text, width, width - 1 if "/" in text else width // 2)
    )


def shorten_middle(text: str, width: int) -> str:
    """A sentence in `width` cells, cut in the middle: it says at both ends what it is about."""
    return text if cell_len(text) <= width else _with_ellipsis(text, width, width // 2)


def _with_ellipsis(text: str, width: int, tail: int) -> str:
    head = width - 1 - tail
    # set_cell_size pads where a double-width letter would be cut in two
    return set_cell_size(text, head) + "…" + set_cell_size(text[::-1], tail)[::-1]


def set_in_columns(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], width: int | None
) -> list[str]:
    """The headings and the rows as lines; names are shortened so that each has `width` cells.

    Args:
        columns: how to set each cell.
        rows: the cells.
        width: the length of a line; None shortens nothing.
    """
    table = [[column.titled for column in columns], *([printable(c) for c in row] for row in rows)]
    widths = [max(map(cell_len, cells)) for cells in zip(*table, strict=True)]
    if width is not None:
        kept = _columns_that_fit(columns, widths, width)
        columns = [columns[index] for index in kept]
        table = [[row[index] for index in kept] for row in table]
        widths = _fitted(columns, [widths[index] for index in kept], width)
    return [_line(columns, row, widths) for row in table]


def _columns_that_fit(columns: Sequence[Column], natural: Sequence[int], width: int) -> list[int]:
    """Which columns to show: all, or without spare ones, the last of which goes first."""
    kept = list(range(len(columns)))
    least = [
        min(size, _READABLE) if column.flexible else size
        for column, size in zip(columns, natural, strict=True)
    ]
    for index in reversed(range(len(columns))):
        if sum(least[each] + len(_SEPARATOR) for each in kept) - len(_SEPARATOR) <= width:
            break
        if columns[index].spare:
            kept.remove(index)
    return kept


def _fitted(columns: Sequence[Column], natural: Sequence[int], width: int) -> list[int]:
    widths = list(natural)
    least = [
        max(_NARROWEST, cell_len(column.titled)) if column.flexible else size
        for column, size in zip(columns, natural, strict=True)
    ]
    for _ in range(sum(widths) + len(_SEPARATOR) * (len(widths) - 1) - width):
        can_give = [index for index, size in enumerate(widths) if size > least[index]]
        if not can_give:
            break
        widths[max(can_give, key=widths.__getitem__)] -= 1
    return widths


def _line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    cells = []
    for column, cell, width in zip(columns, row, widths, strict=True):
        text = shorten(cell, width)
        padding = " " * (width - cell_len(text))
        cells.append(padding + text if column.right else text + padding)
    return _SEPARATOR.join(cells).rstrip()
