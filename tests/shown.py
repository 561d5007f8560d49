"""Pages that show commands and what they print, and whether it is so."""

import re
from typing import Final

FENCED: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""Blocks of a page, each with its language."""

_PACKED_SIZES: Final = re.compile(r"\([\d.]+ kB, (un)?packed from [\d.]+ kB\)")
"""The sizes that `pack` prints: a few bytes more or less with another SQLite or liblzma."""


def console_blocks(page: str) -> list[str]:
    """The blocks of commands and what they print."""
    return [body for language, body in FENCED.findall(page) if language == "console"]


def commands(block: str) -> list[tuple[str, str]]:
    """Each command of a console block, and what it prints."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(command, shown) for command, _, shown in (part.partition("\n") for part in parts)]


def is_shown(shown: str, printed: str) -> bool:
    """`printed` is `shown`, where a line `…` stands for any lines."""
    lines = _plain(shown).split("\n")
    pattern = "\n".join("(?:.*\n)*.*" if line == "…" else re.escape(line) for line in lines)
    return re.fullmatch(pattern, _plain(printed)) is not None


def _plain(text: str) -> str:
    """`text` without the parts that differ between machines."""
    lines = _PACKED_SIZES.sub(r"(N kB, \1packed from N kB)", text).rstrip("\n").split("\n")
    return "\n".join(line.rstrip() for line in lines)
