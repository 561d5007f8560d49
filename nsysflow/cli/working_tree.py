"""Which file of the working tree does a report mean?"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_INSTALLED: Final = frozenset({"node_modules", "site-packages", "__pycache__"})
"""Folders whose files are not the program's own."""


def file_below(name: str) -> str | None:
    """The one file below the current folder whose path ends so, relative to it.

    Args:
        name: the file as a report names it: without the folders in front.

    Returns:
        None where there is no such file, or more than one.
    """
    found = [path for path in _files(Path(name).name) if f"/{path}".endswith(f"/{name}")]
    return found[0] if len(found) == 1 else None


def file_in_repository(name: str) -> str | None:
    """The one file of the working tree that a report names, relative to the root of the repository;
    outside of a repository, to the current folder.

    Args:
        name: the whole path of the file, or the end of one below the current folder.

    Returns:
        None where there is no such file, or more than one.
    """
    here = Path.cwd()
    root = next((each for each in (here, *here.parents) if (each / ".git").exists()), here)
    below = name if Path(name).is_absolute() else file_below(name)
    if below is None:
        return None
    file = (here / below).resolve()  # code scanning does not follow links
    inside = file.is_file() and file.is_relative_to(root)
    return file.relative_to(root).as_posix() if inside else None


def _files(name: str) -> Iterator[str]:
    """Files of a name below the current folder, outside of hidden and installed ones."""
    for folder, inside, names in os.walk("."):
        if "pyvenv.cfg" in names:
            inside.clear()
            continue
        inside[:] = [each for each in inside if not each.startswith(".") and each not in _INSTALLED]
        if name in names:
            yield Path(folder, name).as_posix()
