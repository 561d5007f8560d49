"""What reports are called, by their files."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FOLDER_ENDING: Final = ".nsysflow"
"""`analyze` adds it to a report's file name, for the folder that it writes."""

HTML_FILE: Final = "report.html"
"""The page in that folder, where it was asked for."""

_SUFFIXES: Final = re.compile(
    r"(\.sqlite3?|(\.pt)?(\.trace)?\.json|\.nsys-rep|\.qdrep)?(\.xz|\.gz|\.zst)?$"
)
_RANK: Final = re.compile(r"(?i)[-_.]?rank\D?\d+")


def report_name(path: Path) -> str:
    """A report's name in tables: the file name without known suffixes."""
    name = path.name or path.resolve().name
    return _SUFFIXES.sub("", name, count=1) or name


def distinct_names(names: Sequence[str], files: Sequence[Path]) -> list[str]:
    """The names, each with as many of its file's folders as it takes to make them differ."""
    distinct = list(names)
    for depth in range(1, max((len(file.parts) for file in files), default=0)):
        if len(set(distinct)) == len(distinct):
            break
        folders = ["/".join(file.parent.parts[-depth:]) for file in files]
        distinct = [f"{folder}/{name}" for folder, name in zip(folders, names, strict=True)]
    return distinct


def has_rank(name: str) -> bool:
    """Whether a name says which rank of a run a report is of."""
    return _RANK.search(name) is not None


def without_rank(name: str) -> str:
    """The name that all ranks of a run have in common."""
    return _RANK.sub("", name)


def some_of(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are: `rank3, rank7 and 12 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
