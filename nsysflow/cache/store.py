"""The folder of kept reports: look one up, keep one, make room.

A kept report is one file, which appears by a rename and is never changed, so any number of
processes may read, write and remove: a reader has the file open, and a file that is gone or damaged
only means that the report is read again. The file's time is when it was last used.
"""

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from zipfile import BadZipFile
from zlib import error as ZlibError

import msgspec
import polars as pl

from nsysflow.analysis.load.nsys_export.tables import Shapes
from nsysflow.analysis.trace import Trace
from nsysflow.atomic import remove_leftovers, staged
from nsysflow.cache.fingerprint import loader_version
from nsysflow.cache.frames import About, read, read_about, write
from nsysflow.nsys import user_cache

VARIABLE: Final = "NSYSFLOW_CACHE"
"""Names another folder; `off` keeps and looks up nothing."""

OFF: Final = "off"

MOST_BYTES: Final = 10_000_000_000
"""Frames of 400 M kernels."""

_SHARE: Final = 10
"""Kept reports take at most one part in so many of what is free on the disk."""

_LEVELS: Final[tuple[tuple[Shapes, str], ...]] = ((False, "times"), ("grid", "grid"), (True, "all"))
"""How much a file holds of how kernels were launched, from little to all, as its name says it."""

_NAME: Final = re.compile(r"[0-9a-f]{32}-[0-9a-f]{8}-(times|grid|all)\.frames")

_UNREADABLE: Final = (
    *(OSError, ValueError, KeyError, EOFError, NotImplementedError, RuntimeError),
    *(BadZipFile, ZlibError, msgspec.MsgspecError, pl.exceptions.PolarsError),
)
"""What reading a damaged file raises."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Held:
    """A kept report.

    Attributes:
        file: where it is.
        size: its bytes.
        used_s: when it was last used, in seconds since 1970.
    """

    file: Path
    size: int
    used_s: float

    @property
    def outdated(self) -> bool:
        """Whether another version of the loader kept it, so that nobody looks it up."""
        return self.file.name.split("-")[1] != _version()

    @property
    def about(self) -> About | None:
        """What it says of itself; None if it is damaged, or gone."""
        try:
            return read_about(self.file)
        except _UNREADABLE:
            return None


@dataclass(frozen=True)
class Store:
    """The folder with all kept reports; it need not exist.

    Attributes:
        folder: where the files are.
        most_bytes: what they take together at most.
    """

    folder: Path
    most_bytes: int = MOST_BYTES

    @classmethod
    def here(cls) -> Self | None:
        """The store that the environment names, else the one in the user's cache folder; None
        where it is switched off."""
        named = os.environ.get(VARIABLE)
        if named == OFF:
            return None
        return cls(Path(named) if named else user_cache() / "reports")

    def get(self, key: str, shapes: Shapes) -> Trace | None:
        """A kept trace, without a name; None if it is not here."""
        for file in self._files(key, shapes):
            try:
                trace = read(file, shapes)
            except FileNotFoundError:
                continue
            except _UNREADABLE as error:
                _log.debug("%s cannot be used: %s", file, error)
                self._remove(file)
                continue
            with contextlib.suppress(OSError):  # a read-only folder
                os.utime(file)
            return trace
        return None

    def put(self, key: str, shapes: Shapes, frames: dict[str, pl.DataFrame], said: About) -> None:
        """Keep a trace, and make room for it. Where that fails, nothing is kept."""
        *_, file = (each for level, each in self._by_level(key) if level == shapes)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            remove_leftovers(self.folder)
            with staged(file) as scratch:
                write(scratch, frames, said)
                self._make_room(scratch.stat().st_size)
        except (OSError, pl.exceptions.PolarsError) as error:
            _log.debug("%s is not kept: %s", said.path, error)
            return
        for _, less in self._by_level(key):  # this one serves for those that hold less, too
            if less == file:
                break
            self._remove(less)

    def held(self) -> list[Held]:
        """The kept reports, the one that was used last first."""
        return sorted(self._held(), key=lambda each: -each.used_s)

    def prune(self) -> list[Held]:
        """Remove what no version of ours looks up, what is damaged, leftovers of processes that
        were killed, and the longest unused above the limit; return what was removed."""
        remove_leftovers(self.folder)
        useless = [each for each in self.held() if each.outdated or each.about is None]
        for each in useless:
            self._remove(each.file)
        return useless + self._make_room(0)

    def clear(self) -> list[Held]:
        """Remove all kept reports, and return them."""
        remove_leftovers(self.folder)
        held = self.held()
        for each in held:
            self._remove(each.file)
        return held

    def _make_room(self, wanted: int) -> list[Held]:
        """Remove the longest unused until `wanted` more bytes are within the limit.

        Raises:
            OSError: they are too many for the limit.
        """
        held = self.held()
        if not held and not wanted:  # the folder may not be there
            return []
        total = sum(each.size for each in held) + wanted
        limit = min(self.most_bytes, (shutil.disk_usage(self.folder).free + total) // _SHARE)
        if wanted > limit:
            msg = f"it takes {wanted} bytes, of {limit} for all"
            raise OSError(msg)
        removed = []
        while total > limit:
            oldest = held.pop()
            self._remove(oldest.file)
            removed.append(oldest)
            total -= oldest.size
        return removed

    def _held(self) -> Iterator[Held]:
        with contextlib.suppress(OSError):
            for file in self.folder.iterdir():
                if _NAME.fullmatch(file.name):
                    with contextlib.suppress(OSError):  # another process removed it
                        seen = file.stat()
                        yield Held(file=file, size=seen.st_size, used_s=seen.st_mtime)

    def _files(self, key: str, shapes: Shapes) -> list[Path]:
        """The files that hold enough, the smallest first."""
        levels = [level for level, _ in _LEVELS]
        return [file for _, file in self._by_level(key)][levels.index(shapes) :]

    def _by_level(self, key: str) -> list[tuple[Shapes, Path]]:
        return [
            (level, self.folder / f"{key}-{_version()}-{name}.frames") for level, name in _LEVELS
        ]

    def _remove(self, file: Path) -> None:
        with contextlib.suppress(OSError):  # gone already, or the folder is read-only
            file.unlink()


def _version() -> str:
    """As much of the loader's version as a file's name shows."""
    return loader_version()[:8]
