"""Write figures into a folder, and leave alone what is not ours there."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

from nsysflow.base.atomic import staged_folder
from nsysflow.base.errors import OutputError
from nsysflow.report.figures.drawing import CREATOR, Drawn

_READ: Final = 4096
"""Both kinds of files say within this many bytes who made them."""


def check_figures(folder: Path, names: Collection[str]) -> None:
    """Refuse, before any work is done, a folder that cannot take the figures.

    Args:
        folder: where they go; it need not exist.
        names: the files that may be written.

    Raises:
        OutputError: the folder cannot be written, or has such a file that is not ours.
    """
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    if not there.is_dir():
        raise OutputError(f"{there} is a file", "Name a folder with --figures DIR")
    if not os.access(there, os.W_OK | os.X_OK):
        raise OutputError(
            f"{there} is not a folder that you may write to", "Name another with --figures DIR"
        )
    others = [name for name in names if (folder / name).exists() and not _is_ours(folder / name)]
    if others:
        raise OutputError(
            f"{folder / others[0]} was not made by nsysflow; nothing was written",
            "Name another folder with --figures DIR, or move that file",
        )


def write_figures(drawn: Drawn, folder: Path) -> None:
    """Write the figures, all or nothing. Those of an earlier run that would be empty now go.

    Raises:
        OutputError: they cannot be written; then the folder is as it was.
    """
    stale = [name for name in drawn.not_there if _is_ours(folder / name)]
    try:
        with staged_folder(folder, stale=stale) as scratch:
            for name, content in drawn.files.items():
                (scratch / name).write_bytes(content)
    except OSError as error:
        raise OutputError(
            f"cannot write {folder}: {error.strerror or error}; nothing was written",
            "Make room, or name another folder with --figures DIR",
        ) from error


def _is_ours(file: Path) -> bool:
    """Whether we made that figure."""
    if not file.is_file():
        return False
    with file.open("rb") as content:
        return CREATOR.encode() in content.read(_READ)
