"""Reports and pages that are kept to be read faster: look one up, keep one, make room."""

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Final, Self, TypeVar
from zipfile import BadZipFile
from zlib import error as ZlibError

import msgspec
import polars as pl
from rich.text import Span, Text

import nsysflow
from nsysflow.analysis.load.dispatch import report_at
from nsysflow.analysis.load.export_tables import Shapes
from nsysflow.analysis.load.nsys_rep import SUFFIXES
from nsysflow.analysis.trace import Trace
from nsysflow.base.atomic import remove_leftovers, staged
from nsysflow.base.errors import ReportError
from nsysflow.nsys.installations import user_cache
from nsysflow.runs.kept_frames import About, read, read_about, write

_SAMPLE_BYTES: Final = 1 << 16
"""So much of a file's head, middle and tail is read: 0.3 ms, however long the file is."""

_KEY_BYTES: Final = 16

_JOURNALS: Final = ("-wal", "-journal")

LOADER: Final = (
    "__init__.py",
    "analysis/*.py",
    "analysis/frames/*.py",
    "analysis/load/**/*",
    "base/*.py",
    "nsys/argv.py",
    "nsys/run.py",
    "runs/kept_frames.py",
    "runtime/*.py",
    "runtime/inject/*.py",
)
"""The sources that decide what a report's frames hold: schemas, the loaders, what they use."""


def fingerprint(path: Path, nsys: Path | None) -> str | None:
    """What tells a report from others: its size, time of change and samples of its content.

    It is the same on another path to the same file.

    Args:
        path: as `load` takes it.
        nsys: the nsys that was asked for to export an `.nsys-rep`.

    Returns:
        None where there is no such report, or where a program may still be writing it.
    """
    digest = blake2b(digest_size=_KEY_BYTES)
    try:
        report = report_at(path)
        if report.name.endswith(SUFFIXES):  # another nsys may export other rows
            digest.update(repr((nsys, os.environ.get("NSYSFLOW_NSYS"))).encode())
        for part in _identity(report):
            digest.update(part)
    except (OSError, ReportError):  # the loader says it better
        return None
    return None if _is_written(report) else digest.hexdigest()


@cache
def loader_version() -> str:
    """The version of what makes frames of a report: nobody has to remember to raise it."""
    return version_of(LOADER)


def version_of(sources: Sequence[str]) -> str:
    """A checksum of sources of ours, named by patterns, and of the versions below them."""
    digest = blake2b(f"{nsysflow.__version__} {pl.__version__}".encode(), digest_size=_KEY_BYTES)
    root = Path(nsysflow.__file__).parent
    for file in sorted({file for pattern in sources for file in root.glob(pattern)}):
        if file.suffix in (".py", ".toml"):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _identity(report: Path) -> Iterator[bytes]:
    """What identifies a file, or the files of a folder."""
    files = sorted(report.iterdir()) if report.is_dir() else [report]
    for file in files:
        if report.is_dir():
            yield file.name.encode("utf-8", "surrogateescape")
        with file.open("rb") as content:
            seen = os.fstat(content.fileno())
            yield repr((seen.st_size, seen.st_mtime_ns)).encode()
            for start in (0, seen.st_size // 2, seen.st_size - _SAMPLE_BYTES):
                content.seek(max(start, 0))
                yield content.read(_SAMPLE_BYTES)


def _is_written(report: Path) -> bool:
    """Whether SQLite keeps changes of the file beside it: the loader then refuses to read it."""
    real = report.resolve()
    beside = (real.with_name(real.name + journal) for journal in _JOURNALS)
    return any(file.is_file() and file.stat().st_size for file in beside)


_PAGES_KEY_BYTES: Final = 16

_SOURCES: Final = tuple(
    f"{folder}**/*.{ending}" for folder in ("", "analysis/") for ending in ("py", "toml")
)
"""All of this program; in a working copy, `analysis/` is a link, which `**` does not follow."""


class KeptLine(msgspec.Struct, frozen=True, array_like=True):
    """A line of a page: its text, its style, and the styles of parts of it."""

    text: str
    style: str
    spans: tuple[tuple[int, int, str], ...]


class KeptPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page.

    Attributes:
        reports: what was typed.
        lines: top to bottom.
    """

    reports: tuple[str, ...]
    lines: tuple[KeptLine, ...]


def page_key(reports: Sequence[Path], asked: Iterable[object]) -> str | None:
    """A name for a page.

    Args:
        reports: all that it is of.
        asked: all else that it depends on, as values whose `repr` says all of them.

    Returns:
        None where a report cannot be identified.
    """
    digest = blake2b(digest_size=_PAGES_KEY_BYTES)
    for report in reports:
        found = fingerprint(report, None)
        if found is None:
            return None
        digest.update(found.encode())
    for each in asked:
        digest.update(repr(each).encode())
    return digest.hexdigest()


@cache
def program_version() -> str:
    """The version of all that a page depends on in this program: a checksum of its sources."""
    return version_of(_SOURCES)


def page_of(reports: Sequence[Path], lines: Iterable[Text]) -> KeptPage:
    """Lines as a page."""
    return KeptPage(
        reports=tuple(map(str, reports)),
        lines=tuple(
            KeptLine(
                each.plain,
                str(each.style),
                tuple((span.start, span.end, str(span.style)) for span in each.spans),
            )
            for each in lines
        ),
    )


def lines_of(page: KeptPage) -> list[Text]:
    """A page as lines."""
    return [
        Text(line.text, style=line.style, spans=[Span(*span) for span in line.spans])
        for line in page.lines
    ]


def packed(page: KeptPage) -> bytes:
    """A page with its checksum in front."""
    content = msgspec.json.encode(page)
    return _checksum(content) + content


def unpacked(content: bytes) -> KeptPage:
    """The page in `content`.

    Raises:
        ValueError: it is damaged.
    """
    checksum, page = content[:_PAGES_KEY_BYTES], content[_PAGES_KEY_BYTES:]
    if _checksum(page) != checksum:
        raise ValueError("the checksum is another one")
    return msgspec.json.decode(page, type=KeptPage)


def _checksum(content: bytes) -> bytes:
    return blake2b(content, digest_size=_PAGES_KEY_BYTES).digest()


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
class CacheEntry:
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

    def page(self, key: str) -> KeptPage | None:
        """A kept page; None if it is not here."""
        file = self._file_of_page(key)
        return self._used(file, lambda: unpacked(file.read_bytes()))

    def put(self, key: str, shapes: Shapes, frames: dict[str, pl.DataFrame], said: About) -> None:
        """Keep a trace, and make room for it. Where that fails, nothing is kept."""
        *less, file = self._files(key)[: 1 + _LEVELS.index(shapes)]
        if self._kept(file, lambda scratch: write(scratch, frames, said)):
            for each in less:  # the new one serves for these, too
                self._remove(each)

    def put_page(self, key: str, page: KeptPage) -> None:
        """Keep a page, and make room for it. Where that fails, nothing is kept."""
        self._kept(self._file_of_page(key), lambda scratch: scratch.write_bytes(packed(page)))

    def held(self) -> list[CacheEntry]:
        """The kept reports, the one that was used last first."""
        return sorted(self._held(), key=lambda each: -each.used_s)

    def prune(self) -> list[CacheEntry]:
        """Remove what no version of ours looks up, what is damaged, leftovers of processes that
        were killed, and the longest unused above the limit; return what was removed."""
        remove_leftovers(self.folder)
        useless = [each for each in self.held() if each.outdated or each.of is None]
        for each in useless:
            self._remove(each.file)
        return useless + self._make_room(0)

    def clear(self) -> list[CacheEntry]:
        """Remove all kept reports, and return them."""
        remove_leftovers(self.folder)
        held = self.held()
        for each in held:
            self._remove(each.file)
        return held

    def _make_room(self, wanted: int) -> list[CacheEntry]:
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

    def _held(self) -> Iterator[CacheEntry]:
        with contextlib.suppress(OSError):
            for file in self.folder.iterdir():
                if _NAME.fullmatch(file.name):
                    with contextlib.suppress(OSError):  # another process removed it
                        seen = file.stat()
                        yield CacheEntry(file=file, size=seen.st_size, used_s=seen.st_mtime)

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
