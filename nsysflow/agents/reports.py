"""Reports inside the folder, opened once and kept open."""

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from nsysflow.agents.folder import Folder, stamp
from nsysflow.agents.kept import Kept
from nsysflow.analysis.options import Options
from nsysflow.report.results import Results
from nsysflow.runs.analyze import PAGE, analyze_reports

T = TypeVar("T")

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
        self._opened: Kept[Results] = Kept(MOST_OPEN)
        self._small: Kept[Any] = Kept(_MOST_SMALL)

    def open(self, typed: Sequence[str]) -> Results:
        """The analysis of a report, or of the ranks of one run.

        Args:
            typed: paths in the folder.

        Raises:
            ReportError: a report cannot be read.
            SelectionError: a path leads out of the folder, or a report was given twice.
        """
        paths = [self.folder.inside(each) for each in typed]
        return self._opened.get(
            self._key("open", paths),
            lambda: analyze_reports(paths, self._options, tables=_TABLES),
        )

    def once(self, work: Hashable, paths: Sequence[Path], make: Callable[[], T]) -> T:
        """A small result of some work on reports; kept until one of their files changes.

        Args:
            work: what is done, with all that it depends on besides the files.
            paths: of the reports, inside the folder.
            make: does it.

        Raises:
            SelectionError: a file of a report is outside the folder.
        """
        found: T = self._small.get(self._key(work, paths), make)
        return found

    def _key(self, work: Hashable, paths: Sequence[Path]) -> Hashable:
        """What a result depends on."""
        files = [file for path in paths for file in self.folder.files(path)]
        return work, tuple(paths), stamp(files)
