"""A thing explained: what is said of it, in parts, and how these are set for a terminal."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from nsysflow.report.layout import Block, printable
from nsysflow.report.terminal import set_block, wrapped

WIDTH_MAX: Final = 100
"""Columns of a sentence; longer lines are hard to read. Tables take the whole width."""

_POINT: Final = "- "


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Sentences, each beside the name of what it says."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Prose:
    """A paragraph under a heading; the heading may be empty."""

    title: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Points:
    """A list under a heading. `numbered` where the order matters."""

    title: str
    items: tuple[str, ...]
    numbered: bool = False


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Lines that stay as they are, to be copied: code or commands."""

    title: str
    lines: tuple[str, ...]


Part = Facts | Prose | Points | Lines | Block


@dataclass(frozen=True, kw_only=True)
class Explained:
    """One thing explained.

    Attributes:
        kind: what it is, e.g. `cause of idle time`.
        title: its name, or a sentence.
        parts: what is said, in this order.
    """

    kind: str
    title: str
    parts: tuple[Part, ...]


def set_explained(explained: Explained, width: int) -> Iterator[Text]:
    """The lines of it, for a terminal of `width` columns."""
    room = min(width, WIDTH_MAX)
    yield Text(printable(explained.kind), style="dim")
    yield from (Text(line, style="bold") for line in wrapped(printable(explained.title), room))
    for part in explained.parts:
        match part:
            case Facts():
                yield from _facts(part, room)
            case Prose():
                yield from _titled(part.title, wrapped(printable(part.text), room - 2))
            case Points():
                yield from _titled(part.title, _points(part, room - 2))
            case Lines():
                yield from _titled(part.title, part.lines)
            case Block():
                yield from set_block(part, width)


def _titled(title: str, lines: "list[str] | tuple[str, ...]") -> Iterator[Text]:
    """A heading and indented lines; nothing without lines."""
    if not lines:
        return
    yield Text()
    if title:
        yield Text(title, style="bold")
    yield from (Text(f"  {line}".rstrip()) for line in lines)


def _facts(facts: Facts, room: int) -> Iterator[Text]:
    """The names on the left; each name once, however many sentences it has."""
    rows = [(name, text) for name, text in facts.rows if text]
    if not rows:
        return
    yield Text()
    indent = max(len(name) for name, _ in rows) + 2
    before = ""
    for name, text in rows:
        shown = "" if name == before else name
        before = name
        for index, line in enumerate(wrapped(printable(text), room - indent)):
            yield Text(f"{'' if index else shown:{indent}}{line}")


def _points(points: Points, room: int) -> list[str]:
    lines = []
    for number, item in enumerate(points.items, start=1):
        mark = f"{number}. " if points.numbered else _POINT
        for index, line in enumerate(wrapped(printable(item), room - len(mark))):
            lines.append(f"{' ' * len(mark) if index else mark}{line}")
    return lines
