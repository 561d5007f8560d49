"""What a quoted pattern stands for, and the order of paths. It imports no polars, so that `check`
starts at once."""

import re
from collections.abc import Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path
from shlex import quote
from typing import Final

from nsysflow.base.errors import NotAReport
from nsysflow.base.names import some_of

_NUMBER: Final = re.compile(r"(\d+)")
_MOST_NAMES: Final = 5
"""So many names say what a folder holds."""


def in_natural_order(path: Path) -> tuple[object, ...]:
    """A key that sorts paths as people do: `rank2` before `rank10`."""
    return *([*_numbered(part)] for part in path.parts), [(0, str(path))]


def _numbered(part: str) -> Iterator[tuple[int, str]]:
    """A name as text, number, text, …"""
    for place, text in enumerate(_NUMBER.split(part)):
        yield (int(text), text) if place % 2 else (0, text)


def is_pattern(path: Path) -> bool:
    """Whether a path is not there as it is typed, and has `*`, `?` or `[`."""
    return has_magic(str(path)) and not path.exists()


def matched(paths: Sequence[Path]) -> list[Path]:
    """The paths, each pattern replaced by what it matches, in natural order.

    Raises:
        NotAReport: a pattern matches nothing.
    """
    return [found for path in paths for found in (_matching(path) if is_pattern(path) else [path])]


def _matching(pattern: Path) -> list[Path]:
    found = _glob(pattern)
    if not found:
        folder = _deepest(pattern)
        raise NotAReport(
            f"{pattern} matches nothing; {folder} holds {_held(folder)}",
            "See what is there",
            f"ls {quote(str(folder))}",
        )
    return found


def _glob(pattern: Path) -> list[Path]:
    """What a pattern matches, as a shell would: without hidden files, which `Path.glob` takes."""
    found = glob(str(pattern), recursive=True)  # noqa: PTH207
    return sorted(map(Path, found), key=in_natural_order)


def _deepest(pattern: Path) -> Path:
    """The first folder that as much of a pattern as possible matches."""
    for above in pattern.parents:
        if first := next(filter(Path.is_dir, _glob(above)), None):
            return first
    return Path()


def _held(folder: Path) -> str:
    names = [each.name for each in sorted(folder.iterdir(), key=in_natural_order)]
    return some_of(names, _MOST_NAMES) or "nothing"
