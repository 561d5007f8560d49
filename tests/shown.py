"""Pages that show commands with their output, and a comparison with the real output."""

import re
from typing import Final

FENCED: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""Blocks of a page, each with its language."""

_PACKED_SIZES: Final = re.compile(r"[\d,]+ of [\d,]+ bytes")
"""The sizes that `pack` prints: a few bytes more or less with another SQLite or liblzma."""


def console_blocks(page: str) -> list[str]:
    """The blocks of commands with their output."""
    return [body for language, body in FENCED.findall(page) if language == "console"]


def commands(block: str) -> list[tuple[str, str]]:
    """Each command of a console block, with its output."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(command, shown) for command, _, shown in (part.partition("\n") for part in parts)]


def is_shown(shown: str, printed: str) -> bool:
    """Whether `printed` equals `shown`, in which a line `…` stands for any lines."""
    lines = _plain(shown).split("\n")
    pattern = "\n".join("(?:.*\n)*.*" if line == "…" else re.escape(line) for line in lines)
    return re.fullmatch(pattern, _plain(printed)) is not None


def _plain(text: str) -> str:
    """`text` without the parts that differ between machines."""
    lines = _PACKED_SIZES.sub("N of N bytes", text).rstrip("\n").split("\n")
    return "\n".join(line.rstrip() for line in lines)
