"""A run's directory: what is in it, and when it may be written."""

import re
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path
from typing import Final

from nsysflow.errors import OutputError
from nsysflow.manifest import FILE as MANIFEST
from nsysflow.manifest import read_manifest
from nsysflow.options import TABLES

LOG: Final = "output.log"

_TRACE: Final = re.compile(r"(?:report|rank(?P<rank>\d+))(?:-(?P<pid>\d+))?\.pt\.trace\.json\.gz")
_CAPTURED: Final = re.compile(
    rf"(?:report|rank\d+)\.(?:nsys-rep|qdstrm|sqlite)|{_TRACE.pattern}|told-\d+\.json"
)
_ANALYSED: Final = ("summary.md", "report.json", *(f"{table}.csv" for table in TABLES))


def make_unused_folder(folder: Path) -> Path:
    """Make the directory under a name that nothing has yet: `run`, or `run-2`, `run-3`, … Of runs
    that start at once each gets its own.

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
            raise _unwritable(own, error) from error
        break
    return own


def make_run_folder(folder: Path, *, force: bool) -> None:
    """Make the directory, or empty it of an earlier run's files; a run that left no report is
    replaced without asking.

    Raises:
        OutputError: something is there that may not be replaced, or it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        earlier = read_manifest(folder)
        if any(folder.iterdir()) and not force and (earlier is None or earlier.reports):
            msg = (
                f"{folder} exists and is not empty; nothing was run. Name another directory with"
                " -o DIR, or replace an earlier run with --force"
            )
            raise OutputError(msg)
        ours = list(_files_of_a_run(folder))
        if ours and earlier is None:
            msg = (
                f"{folder} is no run of nsysflow, and holds files of the names that a run writes"
                f" ({ours[0].name}); nothing was run. Name another directory with -o DIR"
            )
            raise OutputError(msg)
        for file in ours:
            file.unlink()
        (folder / LOG).touch()
    except FileExistsError:
        msg = f"{folder} is a file, not a directory; nothing was run. Name another with -o DIR"
        raise OutputError(msg) from None
    except OSError as error:
        raise _unwritable(folder, error) from error


def traces_in(folder: Path) -> list[Path]:
    """The traces that a run's processes left, by rank and pid; the first of a name has no pid."""
    found = [(named, file) for file in folder.iterdir() if (named := _TRACE.fullmatch(file.name))]
    found.sort(key=lambda pair: (int(pair[0]["rank"] or -1), int(pair[0]["pid"] or 0)))
    return [file for _, file in found]


def _unwritable(folder: Path, error: OSError) -> OutputError:
    return OutputError(
        f"{folder} cannot be written: {error.strerror}; nothing was run. Name another directory"
        " with -o DIR"
    )


def _files_of_a_run(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.iterdir()):
        if _CAPTURED.fullmatch(file.name) or file.name in (LOG, MANIFEST, *_ANALYSED):
            yield file
