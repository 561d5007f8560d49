"""The one folder that may be read: which reports are in it, and those that are kept open."""

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Final, Generic, Literal, TypeVar

from rich.text import Text

from nsysflow.analysis.load.dispatch import ENDINGS
from nsysflow.analysis.load.folders import table_files
from nsysflow.analysis.options import Options
from nsysflow.base.errors import NsysflowError, SelectionError
from nsysflow.base.names import uncontrolled
from nsysflow.base.units import size
from nsysflow.compare.document import FILE as DOCUMENT
from nsysflow.report.layout import Block, figure, words
from nsysflow.report.results import Results
from nsysflow.report.text import set_block
from nsysflow.runs.analyze import PAGE, analyze_reports
from nsysflow.runs.manifest import FILE as MANIFEST
from nsysflow.runs.manifest import Manifest, read_manifest
from nsysflow.runs.paths import is_pattern
from nsysflow.runs.sources import sources_of


@dataclass(frozen=True)
class Folder:
    """A folder and all that is in it.

    Attributes:
        root: itself, absolute and without links.
    """

    root: Path

    def inside(self, typed: str | Path) -> Path:
        """A path in the folder, absolute and without links.

        Args:
            typed: as an agent names it: relative to the folder, or absolute.

        Raises:
            SelectionError: it leads out of the folder, itself or through a link.
        """
        try:
            path = (self.root / typed).resolve()
        except (OSError, RuntimeError, ValueError):  # a null byte, or links in a circle
            raise self._outside(typed) from None
        if path.is_symlink() or not path.is_relative_to(self.root):  # a link still: a circle
            raise self._outside(typed)
        return path

    def holds(self, path: Path) -> bool:
        """Whether a path is in the folder, links followed."""
        try:
            self.inside(path)
        except SelectionError:
            return False
        return True

    def files(self, path: Path) -> list[Path]:
        """The files that are read when the reports, run or report.json at `path` are opened.

        Raises:
            Damaged: a manifest cannot be understood.
            NotAReport: a run left no report.
            SelectionError: one of them is outside the folder.
        """
        files = [*self._held(path)]
        if path.is_dir() or is_pattern(path):
            for source in sources_of([path]):  # one may lie elsewhere
                files += self._held(self.inside(source.path))
        return list(dict.fromkeys(files))

    def _held(self, path: Path) -> Iterator[Path]:
        """A file itself, or the files of a folder."""
        if not path.is_dir():
            yield path
            return
        with suppress(PermissionError):  # whoever opens it says so
            for file in sorted(path.iterdir()):
                if not file.is_dir():
                    yield self.inside(file)

    def _outside(self, typed: str | Path) -> SelectionError:
        return SelectionError(
            f"{typed} is outside {self.root}, and nothing else is read",
            "Name a path inside it, or let the user start the server for another folder",
            "nsysflow mcp FOLDER",
        )

    def shown(self, path: Path) -> str:
        """A path as agents name it: relative to the folder."""
        return str(path.relative_to(self.root))


def stamp(files: Sequence[Path]) -> tuple[tuple[str, int, int], ...]:
    """What changes when one of the files is written again: paths, times and sizes."""
    return tuple(
        (str(file), stat.st_mtime_ns, stat.st_size)
        for file in files
        if file.exists()
        for stat in [file.stat()]
    )


T = TypeVar("T")


class LruCache(Generic[T]):
    """The last few results by their keys. Of several threads that ask for one, one makes it."""

    def __init__(self, most: int) -> None:
        """Keep at most `most` results; the one that was longest not asked for goes first."""
        self._most = most
        self._places: OrderedDict[Hashable, _Place[T]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result of that key; made if it is not kept. An error is not kept."""
        with self._lock:
            place = self._places.setdefault(key, _Place())
            self._places.move_to_end(key)
            while len(self._places) > self._most:
                self._places.popitem(last=False)
        return place.get(make)


class _Place(Generic[T]):
    """Where one result is, once it is made."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._made: list[T] = []

    def get(self, make: Callable[[], T]) -> T:
        with self._lock:
            if not self._made:
                self._made.append(make())
            return self._made[0]


Made = TypeVar("Made")

MOST_OPEN: Final = 4
"""A report of a million kernels takes 1 to 2 GB once its tables are made."""

_MOST_SMALL: Final = 32
"""How many other results are kept; they are small."""

_TABLES: Final = (*PAGE, "kernels")
"""What is computed when a report is opened. With `kernels`, grids and blocks are read, too."""


class Reports:
    """The reports in a folder. They stay open until a file changes, or too many others are opened.

    Attributes:
        folder: which one.
    """

    def __init__(self, folder: Folder, options: Options) -> None:
        """Take the folder, and how its reports are looked at."""
        self.folder = folder
        self._options = options
        self._opened: LruCache[Results] = LruCache(MOST_OPEN)
        self._small: LruCache[Any] = LruCache(_MOST_SMALL)

    def open(self, typed: Sequence[str]) -> Results:
        """The analysis of a report, or of the ranks of one run.

        Args:
            typed: paths in the folder.

        Raises:
            ReportError: a report cannot be read.
            SelectionError: a path leads out of the folder, or a report was given twice.
        """
        paths = [self.folder.inside(path) for path in typed]
        return self._opened.get(
            self._key("open", paths),
            lambda: analyze_reports(paths, self._options, tables=_TABLES),
        )

    def once(self, work: Hashable, paths: Sequence[Path], make: Callable[[], Made]) -> Made:
        """A small result of some work on reports; kept until one of their files changes.

        Args:
            work: what is done, with all that it depends on besides the files.
            paths: of the reports, inside the folder.
            make: does it.

        Raises:
            SelectionError: a file of a report is outside the folder.
        """
        result: Made = self._small.get(self._key(work, paths), make)
        return result

    def _key(self, work: Hashable, paths: Sequence[Path]) -> Hashable:
        """What a result depends on."""
        files = [file for path in paths for file in self.folder.files(path)]
        return work, tuple(paths), stamp(files)


Data = TypeVar("Data")

WIDTH: Final = 120
"""Columns of a line of text; names are shortened where they are too few."""


@dataclass(frozen=True, kw_only=True)
class Answer(Generic[Data]):
    """The answer of a tool.

    Attributes:
        text: the words and tables of the terminal.
        data: the figures in full: times in ns, as in report.json.
    """

    text: str
    data: Data


def plain_text(lines: Iterable[Text]) -> str:
    """Lines of a terminal without their colours, and without what controls one."""
    return uncontrolled("\n".join(line.plain.rstrip() for line in lines).strip("\n"))


Kind = Literal["run", "report", "report.json"]

_NOT_OURS: Final = frozenset({"__pycache__", "node_modules", "site-packages"})
"""Folders in which people keep no reports."""

_MOST_FOLDERS: Final = 20_000
"""At most this many are looked into: a few seconds."""


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A report, or a run of several.

    Attributes:
        path: in the folder; what the other tools take.
        kind: `run` is a folder of `nsysflow profile`; `report.json` is the result of an analysis,
            which only `diff` takes.
        bytes: of its reports.
        changed: when it was last written, in UTC.
        reports: of a run, its reports, one per rank; else empty.
        command: of a run, what was profiled; else empty.
    """

    path: str
    kind: Kind
    bytes: int
    changed: str
    reports: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What is in the folder.

    Attributes:
        folder: its path.
        total: how many there are.
        found: the newest of them, newest first.
    """

    folder: str
    total: int
    found: tuple[Listed, ...]


def list_reports(folder: Folder, limit: int) -> Answer[Listing]:
    """The runs and reports in a folder and those below it, newest first; at most `limit`."""
    every = sorted(_found(folder), key=lambda item: item.changed, reverse=True)
    listing = Listing(folder=str(folder.root), total=len(every), found=tuple(every[:limit]))
    return Answer(text=_text(listing), data=listing)


def _text(listing: Listing) -> str:
    if not listing.found:
        return f"{listing.folder} holds no report. Record one: nsysflow profile -- python train.py"
    left = listing.total - len(listing.found)
    block = Block(
        title=listing.folder,
        columns=(words("path"), words("kind"), figure("size"), words("written"), words("command")),
        rows=tuple(
            (item.path, item.kind, size(item.bytes), item.changed, " ".join(item.command))
            for item in listing.found
        ),
        rest=f"{left} older ones" if left else "",
    )
    return plain_text(set_block(block, WIDTH))


def _found(folder: Folder) -> Iterator[Listed]:
    walk = os.walk(folder.root)  # follows no link to a folder
    for number, (place, below, names) in enumerate(walk):
        if number == _MOST_FOLDERS:
            return
        here = Path(place)
        of_folder = _of_folder(folder, here)
        if of_folder is not None:
            below.clear()
            yield of_folder
            continue
        below[:] = [name for name in below if name not in _NOT_OURS and not name.startswith(".")]
        for name in names:
            if name.endswith(ENDINGS) and folder.holds(here / name):
                yield _listed(folder, here / name, "report", [here / name])


def _of_folder(folder: Folder, here: Path) -> Listed | None:
    """What a folder is as a whole; None where it only holds other things."""
    manifest = _manifest(here) if folder.holds(here / MANIFEST) else None
    if manifest is not None:
        reports = [here / name for name in manifest.reports if folder.holds(here / name)]
        return replace(
            _listed(folder, here, "run", reports),
            reports=manifest.reports,
            command=manifest.command,
        )
    if tables := table_files(here):
        return _listed(folder, here, "report", tables)
    document = here / DOCUMENT
    if document.is_file() and folder.holds(document):
        return _listed(folder, document, "report.json", [document])
    return None


def _manifest(here: Path) -> Manifest | None:
    """The manifest of a run's folder; None where none can be read."""
    try:
        return read_manifest(here)
    except NsysflowError:  # whoever opens it says so
        return None


def _listed(folder: Folder, path: Path, kind: Kind, files: Sequence[Path]) -> Listed:
    stats = [file.stat() for file in files if file.exists()] or [path.stat()]
    changed_s = max(stat.st_mtime for stat in stats)
    return Listed(
        path=folder.shown(path),
        kind=kind,
        bytes=sum(file.stat().st_size for file in files if file.is_file()),
        changed=f"{datetime.fromtimestamp(changed_s, UTC):%Y-%m-%d %H:%M:%S}",
    )
