"""Blocks of text cells, and how they are set in columns.

The terminal page and summary.md show the same `Block`s and differ only in how they set them.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from rich.cells import cell_len, set_cell_size

from nsysflow.base.names import printable

_SEPARATOR = "  "
_NARROWEST = 8
"""A flexible column is never narrower than this; the line becomes too long instead."""

_READABLE = 20
"""A flexible column is not narrower than this while a spare column can be left out."""


_SHORTEST_BAR = 10
"""A bar with fewer letters says nothing."""

_INDENT = "    "
"""In front of the second and later lines of a row that takes several."""

_SOURCE_LINE = re.compile(r"(?<![^\s/()])[^\s/()]+\.\w+:\d+")
"""`train.py:42`, which stays whole as far as it can. Looked for where a word begins, not at each of
the million letters that a damaged report may have in a name."""

_DARKER = " ·░▒▚▓█"
"""The letters of bars and maps, each darker than the one before."""

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


_MOST_LETTERS: Final = 4_000
"""Of a longer name the middle is not looked at: in a damaged report hundreds of paths had a million
letters, and to find a line in each took 8 s of CPU time."""


def shorten(text: str, width: int) -> str:
    """The text in `width` cells. A file keeps its name and line. A path is cut at the front,
    another name in the middle, as kernel names differ at both ends."""
    if len(text) > _MOST_LETTERS:
        text = f"{text[: _MOST_LETTERS // 2]}…{text[-_MOST_LETTERS // 2 :]}"
    if cell_len(text) <= width:
        return text
    found = _SOURCE_LINE.search(text)
    if found and cell_len(found[0]) + 2 <= width:
        return _around(text, *found.span(), width)
    return _with_ellipsis(text, width, width - 1 if "/" in text else width // 2)


def _around(text: str, start: int, end: int, width: int) -> str:
    """The text in `width` cells with the part from `start` to `end` whole, and what follows it
    rather than what comes before."""
    before, kept, after = text[:start], text[start:end], text[end:]
    room = width - cell_len(kept) - bool(before)
    if cell_len(after) > room:
        after = set_cell_size(after, room - 1) + "…"
    room = width - cell_len(kept) - cell_len(after)
    if cell_len(before) > room:
        before = "…" + set_cell_size(before[::-1], room - 1)[::-1]
    return before + kept + after


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
    """The headings and the rows as lines; names and bars are shortened so that each has `width`
    cells. Where the figures alone are wider, a row has several lines.

    Args:
        columns: how to set each cell.
        rows: the cells.
        width: the length of a line; None shortens nothing.
    """
    table = [[column.titled for column in columns], *([printable(c) for c in row] for row in rows)]
    widths = [max(map(cell_len, cells)) for cells in zip(*table, strict=True)]
    groups = [[*range(len(columns))]]
    if width is not None:
        sources = [max(map(_source_cells, cells)) for cells in zip(*table[1:], strict=True)]
        sources = sources or [0] * len(columns)
        kept = _columns_that_fit(columns, widths, sources, width)
        drawn = any(column.drawn for column in columns)
        columns = [columns[index] for index in kept]
        if drawn and not any(column.drawn for column in columns):
            columns = [replace(column, letter="") for column in columns]  # letters of no bar
        table = [[row[index] for index in kept] for row in table]
        table[0] = [column.titled for column in columns]
        natural = [widths[index] for index in kept]
        widths = _fitted(columns, natural, [sources[index] for index in kept], width)
        if sum(widths) + len(_SEPARATOR) * (len(widths) - 1) > width:
            widths = [min(size, width - len(_INDENT)) for size in natural]
        groups = _groups(widths, width)
    return [_lines(columns, row, widths, groups) for row in table]


def _source_cells(text: str) -> int:
    """So many cells keep the file and line in a text; 0 without one."""
    found = _SOURCE_LINE.search(text)
    return min(cell_len(text), cell_len(found[0]) + 2) if found else 0


def _groups(widths: Sequence[int], width: int) -> list[list[int]]:
    """Which columns share a line, so that each line has at most `width` cells."""
    groups: list[list[int]] = [[]]
    used = 0
    for index, size in enumerate(widths):
        if groups[-1] and used + size > width:
            groups.append([])
            used = len(_INDENT)
        groups[-1].append(index)
        used += size + len(_SEPARATOR)
    return groups


def _lines(
    columns: Sequence[Column],
    row: Sequence[str],
    widths: Sequence[int],
    groups: Sequence[Sequence[int]],
) -> str:
    """A row in a line per group of columns."""
    lines = []
    for group in groups:
        some = [columns[index] for index in group]
        cells = [row[index] for index in group]
        lines.append(_line(some, cells, [widths[index] for index in group]))
    return f"\n{_INDENT}".join(line for line in lines if line)


def _columns_that_fit(
    columns: Sequence[Column], natural: Sequence[int], sources: Sequence[int], width: int
) -> list[int]:
    """Which columns to show: all, or without spare ones, the last of which goes first."""
    kept = list(range(len(columns)))
    least = [
        min(size, max(_least(column, _READABLE), source))
        for column, size, source in zip(columns, natural, sources, strict=True)
    ]
    for index in reversed(range(len(columns))):
        if sum(least[each] + len(_SEPARATOR) for each in kept) - len(_SEPARATOR) <= width:
            break
        if columns[index].spare:
            kept.remove(index)
    return kept


def _least(column: Column, name: int) -> int:
    """So narrow a column may become; `name` where it has names."""
    if column.drawn:
        return _SHORTEST_BAR
    return name if column.flexible else sys.maxsize


def _fitted(
    columns: Sequence[Column], natural: Sequence[int], sources: Sequence[int], width: int
) -> list[int]:
    least = [
        min(size, max(_least(column, _NARROWEST), cell_len(column.titled), source))
        for column, size, source in zip(columns, natural, sources, strict=True)
    ]
    # a name of a damaged report may have a million letters
    widths = [max(low, min(size, width)) for low, size in zip(least, natural, strict=True)]
    for _ in range(sum(widths) + len(_SEPARATOR) * (len(widths) - 1) - width):
        can_give = [index for index, size in enumerate(widths) if size > least[index]]
        if not can_give:
            break
        widths[max(can_give, key=widths.__getitem__)] -= 1
    return widths


def _shorter_bar(letters: str, width: int) -> str:
    """A bar or a map of so many letters, each the darkest of those that it stands for."""
    if len(letters) <= width or not {*letters} <= {*_DARKER}:
        return shorten(letters, width)
    edges = [len(letters) * index // width for index in range(width + 1)]
    return "".join(max(letters[a:b], key=_DARKER.index) for a, b in pairwise(edges))


def _line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    cells = []
    for column, cell, width in zip(columns, row, widths, strict=True):
        text = _shorter_bar(cell, width) if column.drawn else shorten(cell, width)
        padding = " " * (width - cell_len(text))
        cells.append(padding + text if column.right else text + padding)
    return _SEPARATOR.join(cells).rstrip()
