"""What a tool answers: a text to read, and the same as data."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from rich.text import Text

T = TypeVar("T")

WIDTH: Final = 120
"""Columns of a line of text; names are shortened where they are too few."""


@dataclass(frozen=True, kw_only=True)
class Answer(Generic[T]):
    """The answer of a tool.

    Attributes:
        text: the words and tables of the terminal.
        data: the figures in full: times in ns, as in report.json.
    """

    text: str
    data: T


def plain_text(lines: Iterable[Text]) -> str:
    """Lines of a terminal without their colours."""
    return "\n".join(line.plain.rstrip() for line in lines).strip("\n")
