"""The answers of an analysis, kept to be printed again: look them up, keep them, make room."""

import contextlib
import logging
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import msgspec

import nsysflow
from nsysflow.base.atomic import remove_leftovers, staged
from nsysflow.base.errors import ReportError
from nsysflow.base.names import capture_files
from nsysflow.nsys.installations import user_cache

if TYPE_CHECKING:
    from rich.text import Text

_SAMPLE_BYTES: Final = 1 << 16
"""So much of a file's head, middle and tail is read: 0.3 ms, however long the file is."""

_KEY_BYTES: Final = 16

_JOURNALS: Final = ("-wal", "-journal")

_SOURCES: Final = tuple(
    f"{folder}**/*.{ending}" for folder in ("", "analysis/") for ending in ("py", "toml")
)
"""All of this program; in a working copy, `analysis/` is a link, which `**` does not follow."""


def fingerprint(path: Path) -> str | None:
    """What tells a report from others: its size, time of change and samples of its content.

    It is the same on another path to the same file.

    Args:
        path: as `load` takes it.

    Returns:
        None where there is no such report, or where a program may still be writing it.
    """
    from nsysflow.analysis.load.dispatch import report_at
    from nsysflow.analysis.load.unpacking import NSYS_SUFFIXES

    digest = blake2b(digest_size=_KEY_BYTES)
    try:
        report = report_at(path)
        if report.name.endswith(NSYS_SUFFIXES):  # another nsys may export other rows
            digest.update(repr(os.environ.get("NSYSFLOW_NSYS")).encode())
        for part in chain(_identity(report), _identity_of_captures(report)):
            digest.update(part)
    except (OSError, ReportError):  # the loader says it better
        return None
    return None if _is_written(report) else digest.hexdigest()


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


def _identity_of_captures(report: Path) -> Iterator[bytes]:
    """What identifies the captures beside a trace, which are read with it."""
    for file in capture_files(report.parent):
        seen = file.stat()
        yield repr((file.name, seen.st_size, seen.st_mtime_ns)).encode("utf-8", "surrogateescape")


def _is_written(report: Path) -> bool:
    """Whether SQLite keeps changes of the file beside it: the loader then refuses to read it."""
    real = report.resolve()
    journals = (real.with_name(real.name + journal) for journal in _JOURNALS)
    return any(file.is_file() and file.stat().st_size for file in journals)


def answer_key(reports: Sequence[Path], asked: Iterable[object]) -> str | None:
    """A name for the answers of an analysis.

    Args:
        reports: all that they are of.
        asked: all else that they depend on, as values whose `repr` says all of them.

    Returns:
        None where a report cannot be identified.
    """
    digest = blake2b(digest_size=_KEY_BYTES)
    for report in reports:
        identity = fingerprint(report)
        if identity is None:
            return None
        digest.update(identity.encode())
    for value in asked:
        digest.update(repr(value).encode())
    return digest.hexdigest()


@cache
def program_version() -> str:
    """The version of all that an answer depends on in this program: a checksum of its sources, so
    that nobody has to remember to raise it."""
    digest = blake2b(f"{nsysflow.__version__} {version('polars')}".encode(), digest_size=_KEY_BYTES)
    root = Path(nsysflow.__file__).parent
    for file in sorted({file for pattern in _SOURCES for file in root.glob(pattern)}):
        digest.update(file.read_bytes())
    return digest.hexdigest()


class KeptLine(msgspec.Struct, frozen=True, array_like=True):
    """A line: its text, its style, and the styles of parts of it."""

    text: str
    style: str
    spans: tuple[tuple[int, int, str], ...]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What is printed.

    Attributes:
        lines: top to bottom.
        remarks: what is said of them on stderr.
    """

    lines: tuple[KeptLine, ...]
    remarks: tuple[str, ...] = ()

    @classmethod
    def of(cls, lines: Iterable["Text"], remarks: Iterable[str] = ()) -> Self:
        """Lines as an answer."""
        return cls(
            lines=tuple(
                KeptLine(
                    line.plain,
                    str(line.style),
                    tuple((span.start, span.end, str(span.style)) for span in line.spans),
                )
                for line in lines
            ),
            remarks=tuple(remarks),
        )

    @property
    def texts(self) -> "list[Text]":
        """Its lines, as they are printed."""
        from rich.text import Span, Text

        return [
            Text(line.text, style=line.style, spans=[Span(*span) for span in line.spans])
            for line in self.lines
        ]


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """The kept answers of an analysis.

    Attributes:
        reports: what was typed.
        by_name: each answer by what was asked: `page`, `explain 1`, `table kernels`.
    """

    reports: tuple[str, ...]
    by_name: dict[str, Answer]


def packed(answers: Answers) -> bytes:
    """Answers with their checksum in front."""
    content = msgspec.json.encode(answers)
    return _checksum(content) + content


def unpacked(content: bytes) -> Answers:
    """The answers in `content`.

    Raises:
        ValueError: it is damaged.
    """
    checksum, answers = content[:_KEY_BYTES], content[_KEY_BYTES:]
    if _checksum(answers) != checksum:
        raise ValueError("the checksum is another one")
    return msgspec.json.decode(answers, type=Answers)


def _checksum(content: bytes) -> bytes:
    return blake2b(content, digest_size=_KEY_BYTES).digest()


VARIABLE: Final = "NSYSFLOW_CACHE"
"""Names another folder; `off` keeps and looks up nothing."""

OFF: Final = "off"

MOST_BYTES: Final = 1_000_000_000
"""The answers of some thousand analyses."""

MOST_LINES: Final = 1_000
"""A longer answer is not kept: all gaps of a report may be a million lines."""

_SHARE: Final = 10
"""Kept answers take at most one part in so many of what is free on the disk."""

_CLOCKS_DIFFER_S: Final = 24 * 3600
"""An answer that was used later than so far in the future is not kept for the sake of it: it would
never be the longest unused, and new ones would have to go."""

_PRIVATE: Final = 0o600
"""The report itself may be hidden from others."""

_SHOWN: Final = 8
"""So much of a version is in a file's name."""

_NAME: Final = re.compile(r"[0-9a-f]{32}-[0-9a-f]{8}-[a-z]+\.kept")
"""What is ours, whatever version wrote it."""

_UNREADABLE: Final = (OSError, ValueError, msgspec.MsgspecError)
"""What reading a damaged file raises."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CacheEntry:
    """The kept answers of an analysis.

    Attributes:
        file: where they are.
        size: their bytes.
        used_s: when they were last used, in seconds since 1970; 0 if a clock was wrong then.
    """

    file: Path
    size: int
    used_s: float

    @property
    def outdated(self) -> bool:
        """Whether another version of this program kept them, so that nobody looks them up."""
        return self.file.name.split("-")[1] != program_version()[:_SHOWN]

    @property
    def reports(self) -> str | None:
        """The reports that they are of, as typed; None if the file is damaged, or gone."""
        try:
            return " ".join(unpacked(self.file.read_bytes()).reports)
        except _UNREADABLE:
            return None


@dataclass(frozen=True)
class Store:
    """The folder with all kept answers; it need not exist.

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

    def answer(self, key: str, name: str) -> Answer | None:
        """A kept answer; None if it is not here."""
        answers = self._answers(key)
        return None if answers is None else answers.by_name.get(name)

    def keep(self, key: str, reports: Sequence[Path], answers: Mapping[str, Answer]) -> None:
        """Keep answers by their names beside those that are kept, and make room for them. Where
        that fails, nothing is kept."""
        short = {
            name: answer for name, answer in answers.items() if len(answer.lines) <= MOST_LINES
        }
        if not short:
            return
        kept = self._answers(key)
        by_name = short if kept is None else kept.by_name | short
        content = packed(Answers(reports=tuple(map(str, reports)), by_name=by_name))
        file = self._file(key)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with staged(file) as scratch:
                scratch.write_bytes(content)
                scratch.chmod(_PRIVATE)
                self._make_room(len(content))
        except OSError as error:
            _log.debug("%s is not kept: %s", file, error)

    def entries(self) -> list[CacheEntry]:
        """What is kept, the one that was used last first."""
        return sorted(self._entries(), key=lambda entry: -entry.used_s)

    def prune(self) -> list[CacheEntry]:
        """Remove what no version of ours looks up, what is damaged, leftovers of processes that
        were killed, and the longest unused above the limit; return what was removed."""
        remove_leftovers(self.folder)
        useless = [entry for entry in self.entries() if entry.outdated or entry.reports is None]
        for entry in useless:
            self._remove(entry.file)
        return useless + self._make_room(0)

    def clear(self) -> list[CacheEntry]:
        """Remove all that is kept, and return it."""
        remove_leftovers(self.folder)
        entries = self.entries()
        for entry in entries:
            self._remove(entry.file)
        return entries

    def _make_room(self, wanted: int) -> list[CacheEntry]:
        """Remove the longest unused until `wanted` more bytes are within the limit.

        Raises:
            OSError: they are too many for the limit.
        """
        entries = self.entries()
        if not entries and not wanted:  # the folder may not be there
            return []
        total = sum(entry.size for entry in entries) + wanted
        limit = min(self.most_bytes, (shutil.disk_usage(self.folder).free + total) // _SHARE)
        if wanted > limit:
            msg = f"it takes {wanted} bytes, of {limit} for all"
            raise OSError(msg)
        removed = []
        while total > limit:
            oldest = entries.pop()
            self._remove(oldest.file)
            removed.append(oldest)
            total -= oldest.size
        return removed

    def _entries(self) -> Iterator[CacheEntry]:
        latest_s = time.time() + _CLOCKS_DIFFER_S
        with contextlib.suppress(OSError):
            for file in self.folder.iterdir():
                if _NAME.fullmatch(file.name):
                    with contextlib.suppress(OSError):  # another process removed it
                        seen = file.stat()
                        used_s = seen.st_mtime if seen.st_mtime <= latest_s else 0.0
                        yield CacheEntry(file=file, size=seen.st_size, used_s=used_s)

    def _answers(self, key: str) -> Answers | None:
        """All kept answers of an analysis; None if there are none. A damaged file is removed."""
        file = self._file(key)
        try:
            answers = unpacked(file.read_bytes())
        except FileNotFoundError:
            return None
        except _UNREADABLE as error:
            _log.debug("%s cannot be used: %s", file, error)
            self._remove(file)
            return None
        with contextlib.suppress(OSError):  # a read-only folder
            os.utime(file)
        return answers

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}-{program_version()[:_SHOWN]}-answers.kept"

    def _remove(self, file: Path) -> None:
        with contextlib.suppress(OSError):  # gone already, or the folder is read-only
            file.unlink()
