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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar
from zipfile import BadZipFile
from zlib import error as ZlibError

import msgspec
import polars as pl

from nsysflow.analysis.load.export_tables import Shapes
from nsysflow.analysis.trace import Trace
from nsysflow.base.atomic import remove_leftovers, staged
from nsysflow.cache.fingerprint import loader_version
from nsysflow.cache.frames import About, read, read_about, write
from nsysflow.cache.pages import Page, packed, program_version, unpacked
from nsysflow.nsys.installations import user_cache

VARIABLE: Final = "NSYSFLOW_CACHE"
"""Names another folder; `off` keeps and looks up nothing."""

OFF: Final = "off"

MOST_BYTES: Final = 10_000_000_000
"""Frames of 400 M kernels."""

_SHARE: Final = 10
"""Kept reports take at most one part in so many of what is free on the disk."""

_PRIVATE: Final = 0o600
"""The report itself may be hidden from others."""

_LEVELS: Final[tuple[Shapes, ...]] = (False, "grid", True)
_LEVEL_NAMES: Final = ("times", "grid", "all")
"""How much a file holds of how kernels were launched, from nothing to all."""

_SHOWN: Final = 8
"""So much of a version is in a file's name."""

_PAGE: Final = "page"

_NAME: Final = re.compile(rf"[0-9a-f]{{32}}-[0-9a-f]{{8}}-(times|grid|all|{_PAGE})\.kept")

_UNREADABLE: Final = (
    *(OSError, ValueError, KeyError, EOFError, NotImplementedError, RuntimeError),
    *(BadZipFile, ZlibError, msgspec.MsgspecError, pl.exceptions.PolarsError),
)
"""What reading a damaged file raises."""

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Held:
    """A kept report, or page.

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
        """Whether another version of this program kept it, so that nobody looks it up."""
        version = program_version() if self.is_page else loader_version()
        return self.file.name.split("-")[1] != version[:_SHOWN]

    @property
    def is_page(self) -> bool:
        return self.file.stem.endswith(_PAGE)

    @property
    def of(self) -> str | None:
        """The report that it is of, as it was found; None if it is damaged, or gone."""
        try:
            if self.is_page:
                return f"page of {' '.join(unpacked(self.file.read_bytes()).reports)}"
            return read_about(self.file).path
        except _UNREADABLE:
            return None


@dataclass(frozen=True)
class Store:
    """The folder with all kept reports and pages; it need not exist.

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
        for file in self._files(key)[_LEVELS.index(shapes) :]:
            trace = self._used(file, partial(read, file, shapes))
            if trace is not None:
                return trace
        return None

    def page(self, key: str) -> Page | None:
        """A kept page; None if it is not here."""
        file = self._file_of_page(key)
        return self._used(file, lambda: unpacked(file.read_bytes()))

    def put(self, key: str, shapes: Shapes, frames: dict[str, pl.DataFrame], said: About) -> None:
        """Keep a trace, and make room for it. Where that fails, nothing is kept."""
        *less, file = self._files(key)[: 1 + _LEVELS.index(shapes)]
        if self._kept(file, lambda scratch: write(scratch, frames, said)):
            for each in less:  # the new one serves for these, too
                self._remove(each)

    def put_page(self, key: str, page: Page) -> None:
        """Keep a page, and make room for it. Where that fails, nothing is kept."""
        self._kept(self._file_of_page(key), lambda scratch: scratch.write_bytes(packed(page)))

    def held(self) -> list[Held]:
        """The kept reports, the one that was used last first."""
        return sorted(self._held(), key=lambda each: -each.used_s)

    def prune(self) -> list[Held]:
        """Remove what no version of ours looks up, what is damaged, leftovers of processes that
        were killed, and the longest unused above the limit; return what was removed."""
        remove_leftovers(self.folder)
        useless = [each for each in self.held() if each.outdated or each.of is None]
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

    def _used(self, file: Path, read_it: Callable[[], T]) -> T | None:
        """What a file holds; None if it is not here. A damaged one is removed."""
        try:
            found = read_it()
        except FileNotFoundError:
            return None
        except _UNREADABLE as error:
            _log.debug("%s cannot be used: %s", file, error)
            self._remove(file)
            return None
        with contextlib.suppress(OSError):  # a read-only folder
            os.utime(file)
        return found

    def _kept(self, file: Path, write_it: Callable[[Path], object]) -> bool:
        """Whether a file could be written, and there was room for it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with staged(file) as scratch:
                write_it(scratch)
                scratch.chmod(_PRIVATE)
                self._make_room(scratch.stat().st_size)
        except (OSError, pl.exceptions.PolarsError) as error:
            _log.debug("%s is not kept: %s", file, error)
            return False
        return True

    def _files(self, key: str) -> list[Path]:
        """Where the frames of a report may be, by how much is kept of them."""
        version = loader_version()[:_SHOWN]
        return [self.folder / f"{key}-{version}-{name}.kept" for name in _LEVEL_NAMES]

    def _file_of_page(self, key: str) -> Path:
        return self.folder / f"{key}-{program_version()[:_SHOWN]}-{_PAGE}.kept"

    def _remove(self, file: Path) -> None:
        with contextlib.suppress(OSError):  # gone already, or the folder is read-only
            file.unlink()
