"""The names of a report's ranges, read in milliseconds: what a shell can complete."""

import csv
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from nsysflow.base.names import from_csv
from nsysflow.runs.manifest import is_run

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
        paths = {from_csv(row["path"]) for row in csv.DictReader(file)}
    return {name for path in paths for name in (path, path.rpartition("/")[2])}


def _exported(report: Path) -> Iterator[str]:
    """The names in an export; one with a number may be called otherwise by the analysis."""
    database = report / "report.sqlite" if report.is_dir() else report
    with closing(sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True)) as open_report:
        for (name,) in open_report.execute(_SQL):
            if isinstance(name, str) and not _NUMBER.search(name):
                yield name
