"""Where the page of a run is, whether it is still right, and which ranges a report has."""

import csv
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from nsysflow.base.errors import NotAReport
from nsysflow.base.names import FOLDER_ENDING, HTML_FILE
from nsysflow.report.html.document import GENERATOR
from nsysflow.runs.files import output_folder
from nsysflow.runs.manifest import is_run
from nsysflow.runs.sources import newest_run, sources_of

_HEAD_BYTES: Final = 1_000
"""The first bytes of a page name the program that wrote it."""


@dataclass(frozen=True, kw_only=True)
class RunPage:
    """The page of a run.

    Attributes:
        page: its file, which may not be there yet.
        reports: what to analyse for it; none where its reports are not known or not there.
    """

    page: Path
    reports: tuple[Path, ...]

    @property
    def is_current(self) -> bool:
        """Whether there is nothing to write: this version wrote the page, after its reports."""
        if not self.reports:
            return True
        return (
            self.page.is_file()
            and _written_by_us(self.page)
            and self.page.stat().st_mtime_ns >= _recorded_ns(self.reports)
        )


def page_file_of(run: Path | None) -> RunPage:
    """The page of a report, of a run's folder, or in a folder that `analyze` wrote.

    Args:
        run: which one; None takes the newest run in the current folder.

    Raises:
        NotAReport: there is no run here; or the folder holds no page, and its report is gone.
        OutputError: the page's folder cannot be written, or nsysflow did not make it.
    """
    run = newest_run(Path()) if run is None else run
    if run.is_file() or is_run(run) or not (run.is_dir() and _is_of_analyze(run)):
        return RunPage(page=output_folder([run], None, force=False) / HTML_FILE, reports=(run,))
    named = run if run.name not in ("", "..") else run.resolve()
    report = named.with_name(named.name.removesuffix(FOLDER_ENDING))
    there = report != named and report.exists()
    if not there and not (run / HTML_FILE).is_file():
        raise NotAReport(
            f"{run} holds no {HTML_FILE}, and the report it was made from is not beside it",
            "Name the report",
            "nsysflow show REPORT",
        )
    return RunPage(page=run / HTML_FILE, reports=(report,) if there else ())


def _is_of_analyze(folder: Path) -> bool:
    return folder.resolve().name.endswith(FOLDER_ENDING) or (folder / HTML_FILE).is_file()


def _written_by_us(page: Path) -> bool:
    with page.open("rb") as file:
        return GENERATOR.encode() in file.read(_HEAD_BYTES)


def _recorded_ns(reports: Sequence[Path]) -> int:
    return max(source.path.stat().st_mtime_ns for source in sources_of(reports))


_SQL: Final = """
    SELECT DISTINCT coalesce(text, value)
    FROM (SELECT text, textId FROM NVTX_EVENTS WHERE eventType IN (59, 60) LIMIT 100000)
    LEFT JOIN StringIds ON id = textId
    LIMIT 500
"""
"""59 are ranges that were pushed, 60 are those that were started. The limits keep it fast."""

_NUMBER: Final = re.compile(r"\d")


def range_names(report: Path) -> list[str]:
    """The ranges of a report by name and path: as an earlier analysis wrote them, else as a plain
    SQLite export holds them. None where neither can be read, or the report is of another kind."""
    folder = report if is_run(report) else Path(f"{report}.nsysflow")
    try:
        return sorted({*(_analysed(folder / "phases.csv") or _exported(report))})
    except (OSError, UnicodeDecodeError, KeyError, csv.Error, sqlite3.Error):
        return []


def _analysed(phases: Path) -> set[str]:
    """The names and paths in phases.csv; none without the file."""
    if not phases.is_file():
        return set()
    with phases.open(encoding="utf-8", newline="") as file:
        paths = {row["path"] for row in csv.DictReader(file)}
    return {name for path in paths for name in (path, path.rpartition("/")[2])}


def _exported(report: Path) -> Iterator[str]:
    """The names in an export; one with a number may be called otherwise by the analysis."""
    database = report / "report.sqlite" if report.is_dir() else report
    with closing(sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True)) as open_report:
        for (name,) in open_report.execute(_SQL):
            if isinstance(name, str) and not _NUMBER.search(name):
                yield name
