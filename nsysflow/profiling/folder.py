"""A run's folder: making it, and emptying it of an earlier run."""

import re
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path
from typing import Final

from nsysflow.analysis.declared.tables import TABLES
from nsysflow.base.errors import Damaged, OutputError
from nsysflow.runs.manifest import FILE as MANIFEST
from nsysflow.runs.manifest import LOG, is_run, read_manifest
from nsysflow.runtime.inject.nsysflow_hook import ANNOTATED, HOOKED, NOT_ANNOTATED

_TRACE: Final = re.compile(r"(?:report|rank(?P<rank>\d+))(?:-(?P<pid>\d+))?\.pt\.trace\.json\.gz")
_CAPTURED: Final = re.compile(
    rf"(?:report|rank\d+)\.(?:nsys-rep|qdstrm|sqlite)|{_TRACE.pattern}|child-\d+\.json"
    rf"|{HOOKED}|{ANNOTATED}|{NOT_ANNOTATED}"
)
_ANALYSED: Final = (
    *("summary.md", "report.json", "gap-report.csv", "gap-report.md"),
    *(f"{table}.csv" for table in TABLES),
)

_ELSEWHERE: Final = "Name another folder with -o DIR"


def make_unused_folder(folder: Path) -> Path:
    """Make the folder under the first free name of `run`, `run-2`, `run-3`, …, and return it. Runs
    that start at the same time get one each.

    Raises:
        OutputError: it cannot be made.
    """
    numbered = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    for own in chain([folder], numbered):
        try:
            own.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise _cannot_write(own, error) from error
        break
    return own


def make_run_folder(folder: Path, *, force: bool) -> None:
    """Make the folder, or empty it of an earlier run's files. A run that left no report is replaced
    without `force`.

    Raises:
        OutputError: the folder holds something that may not be replaced, or cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()) and not force and not _left_no_report(folder):
            raise OutputError(
                f"{folder} exists and is not empty; nothing was run",
                f"{_ELSEWHERE}, or replace an earlier run with --force",
            )
        of_a_run = list(_files_of_a_run(folder))
        if of_a_run and not is_run(folder):
            raise OutputError(
                f"{folder} is not a run of nsysflow, but holds a file that a run would replace"
                f" ({of_a_run[0].name}); nothing was run",
                _ELSEWHERE,
            )
        for file in of_a_run:
            file.unlink()
        (folder / LOG).touch()
    except FileExistsError:
        raise OutputError(
            f"{folder} is a file, not a folder; nothing was run", _ELSEWHERE
        ) from None
    except OSError as error:
        raise _cannot_write(folder, error) from error


def traces_in(folder: Path) -> list[Path]:
    """The Kineto traces that a run's processes left, by rank and process id."""
    found = [(named, file) for file in folder.iterdir() if (named := _TRACE.fullmatch(file.name))]
    found.sort(key=lambda pair: (int(pair[0]["rank"] or -1), int(pair[0]["pid"] or 0)))
    return [file for _, file in found]


def _left_no_report(folder: Path) -> bool:
    """Whether the folder is that of a run without reports."""
    try:
        earlier = read_manifest(folder)
    except Damaged:
        return False
    return earlier is not None and not earlier.reports


def _cannot_write(folder: Path, error: OSError) -> OutputError:
    return OutputError(f"{folder} cannot be written: {error.strerror}; nothing was run", _ELSEWHERE)


def _files_of_a_run(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.iterdir()):
        if _CAPTURED.fullmatch(file.name) or file.name in (LOG, MANIFEST, *_ANALYSED):
            yield file
