"""The one folder that may be read: which paths are in it, and which files a report consists of."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nsysflow.base.errors import SelectionError
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
        found = [*self._held(path)]
        if path.is_dir() or is_pattern(path):
            for source in sources_of([path]):  # one may lie elsewhere
                found += self._held(self.inside(source.path))
        return list(dict.fromkeys(found))

    def _held(self, path: Path) -> Iterator[Path]:
        """A file itself, or the files of a folder."""
        if not path.is_dir():
            yield path
            return
        with suppress(PermissionError):  # whoever opens it says so
            for each in sorted(path.iterdir()):
                if not each.is_dir():
                    yield self.inside(each)

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
