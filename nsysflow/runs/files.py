"""Write the results: pages, tables, figures and report.json in a folder, or gaps.csv alone."""

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nsysflow.base.atomic import staged_file, staged_folder
from nsysflow.base.errors import OutputError
from nsysflow.base.names import FOLDER_ENDING, HTML_FILE
from nsysflow.compare.document import FILE
from nsysflow.report.gap_report import gap_report, tracks_of, write_gap_report
from nsysflow.report.pictures import CREATOR, DrawnFigures
from nsysflow.report.results import Results
from nsysflow.report.tables import (
    GAPS_CSV,
    GAPS_PARQUET,
    WHERE_THERE,
    GapsFormat,
    write_files,
    write_gaps_csv,
)
from nsysflow.report.text import summary
from nsysflow.runs.manifest import is_run
from nsysflow.runs.paths import is_pattern
from nsysflow.runs.sources import sources_of

_ELSEWHERE: Final = "Make room, choose another place with -o DIR, or print only, with --no-files"

MARK: Final = FILE
"""nsysflow replaces a folder that holds this file without asking."""


def output_folder(reports: Sequence[Path], folder: Path | None, *, force: bool) -> Path:
    """Where the files go: `folder`, the run's folder, or `REPORT.nsysflow` beside the report.

    Raises:
        OutputError: the folder cannot be written, nsysflow did not make it, or there is none
            beside a pattern.
    """
    chosen = folder if folder is not None else _folder_beside(reports[0])
    check_folder(chosen, force=force or is_run(chosen))
    return chosen


def check_folder(folder: Path, *, force: bool) -> None:
    """Refuse, before any work is done, a folder that cannot be written or is not ours.

    Raises:
        OutputError: the folder cannot be written, or nsysflow did not make it.
    """
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if _exists(each))
    exists = there == folder.absolute()
    if exists and not folder.is_dir():
        raise OutputError(f"{folder} is a file", "Name another folder with -o DIR")
    effective = os.access in os.supports_effective_ids
    if not os.access(there, os.W_OK | os.X_OK, effective_ids=effective):
        raise _write_error(folder, f"{there} is not a folder that you may write to")
    if exists and not (folder / MARK).is_file() and not force:
        raise OutputError(
            f"{folder} exists and was not made by nsysflow (it holds no {MARK}); nothing was"
            " written",
            "Name another folder with -o DIR, or write into this one with --force",
        )


def write_folder(
    results: Results,
    folder: Path,
    *,
    top: int | None,
    at_least_ns: int,
    gaps_format: GapsFormat = "auto",
    html: bool = False,
) -> None:
    """Write summary.md, the gap report, the tables and report.json, all or nothing; with `html`
    also report.html.

    Raises:
        OutputError: the folder cannot be written; then it is as it was.
    """
    with writing(folder) as scratch:
        write_files(results, scratch, at_least_ns=at_least_ns, gaps_format=gaps_format)
        page = summary(results, top=top, at_least_ns=at_least_ns)
        (scratch / "summary.md").write_text(page, encoding="utf-8")
        write_gap_report(gap_report(tracks_of(results)), scratch)
        if html:
            from nsysflow.report.html.page import write_html

            write_html(results, scratch / HTML_FILE)


@contextmanager
def writing(folder: Path) -> Iterator[Path]:
    """A scratch folder whose files become those of `folder`, `MARK` last.

    A table without rows gets no file, gaps are either CSV or Parquet, and report.html is written
    where it is asked for: an older file that was not written anew goes, if the folder is ours.

    Raises:
        OutputError: the folder cannot be written; then it is as it was.
    """
    ours = (folder / MARK).is_file()
    sometimes = (GAPS_CSV, GAPS_PARQUET, HTML_FILE, *(f"{name}.csv" for name in WHERE_THERE))
    stale = sometimes if ours else ()
    try:
        with staged_folder(folder, last=MARK, stale=stale) as scratch:
            yield scratch
    except OSError as error:
        raise _write_error(folder, _reason(error)) from error


def write_gaps(results: Results, file: Path, reports: Sequence[Path], *, at_least_ns: int) -> int:
    """Write gaps.csv as `file`, whole or not at all, and return its number of rows.

    Raises:
        OutputError: the file cannot be written, or is one of the reports.
    """
    with _whole_file(file, reports) as scratch, scratch.open("wb") as out:
        return write_gaps_csv(results, out, at_least_ns=at_least_ns)


def write_perfetto(results: Results, file: Path, reports: Sequence[Path]) -> int:
    """Write a trace for ui.perfetto.dev, whole or not at all, and return its number of slices.

    Raises:
        NsysflowError: the package `perfetto` is not installed.
        OutputError: the file cannot be written, or is one of the reports.
    """
    from nsysflow.report.perfetto.trace import write_trace

    with _whole_file(file, reports) as scratch, scratch.open("wb") as out:
        return write_trace(results, out)


def write_text(text: str, file: Path, reports: Sequence[Path]) -> None:
    """Write a text as `file`, whole or not at all.

    Raises:
        OutputError: the file cannot be written, or is one of the reports.
    """
    with _whole_file(file, reports) as scratch:
        scratch.write_text(text, encoding="utf-8")


@contextmanager
def _whole_file(file: Path, reports: Sequence[Path]) -> Iterator[Path]:
    """A scratch file that becomes `file`.

    Raises:
        OutputError: the file cannot be written, or is one of the reports.
    """
    if file.exists() and any(file.samefile(source.path) for source in sources_of(reports)):
        raise OutputError(f"{file} is the report itself; nothing was written", "Name another file")
    try:
        with staged_file(file) as scratch:
            yield scratch
    except OSError as error:
        raise _write_error(file, _reason(error), "Make room, or name another file") from error


def _folder_beside(report: Path) -> Path:
    if is_pattern(report):
        raise OutputError(
            f"there is no one place beside {report} for the files",
            "Name the folder that holds the reports, or one for the files with -o DIR",
        )
    return report if is_run(report) else Path(f"{report}{FOLDER_ENDING}")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:  # inside a folder that may not be entered
        return False


def _reason(error: OSError) -> str:
    return error.strerror or str(error)  # polars' errors have no strerror


def _write_error(target: Path, reason: str, advice: str = _ELSEWHERE) -> OutputError:
    return OutputError(f"cannot write {target}: {reason}; nothing was written", advice)


_READ: Final = 4096
"""Both kinds of files say within this many bytes who made them."""


def check_figures(folder: Path, names: Collection[str]) -> None:
    """Refuse, before any work is done, a folder that cannot take the figures.

    Args:
        folder: where they go; it need not exist.
        names: the files that may be written.

    Raises:
        OutputError: the folder cannot be written, or has such a file that is not ours.
    """
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    if not there.is_dir():
        raise OutputError(f"{there} is a file", "Name a folder with --figures DIR")
    if not os.access(there, os.W_OK | os.X_OK):
        raise OutputError(
            f"{there} is not a folder that you may write to", "Name another with --figures DIR"
        )
    others = [name for name in names if (folder / name).exists() and not _is_ours(folder / name)]
    if others:
        raise OutputError(
            f"{folder / others[0]} was not made by nsysflow; nothing was written",
            "Name another folder with --figures DIR, or move that file",
        )


def write_figures(drawn: DrawnFigures, folder: Path) -> None:
    """Write the figures, all or nothing. Those of an earlier run that would be empty now go.

    Raises:
        OutputError: they cannot be written; then the folder is as it was.
    """
    stale = [name for name in drawn.not_there if _is_ours(folder / name)]
    try:
        with staged_folder(folder, stale=stale) as scratch:
            for name, content in drawn.files.items():
                (scratch / name).write_bytes(content)
    except OSError as error:
        raise OutputError(
            f"cannot write {folder}: {error.strerror or error}; nothing was written",
            "Make room, or name another folder with --figures DIR",
        ) from error


def _is_ours(file: Path) -> bool:
    """Whether we made that figure."""
    if not file.is_file():
        return False
    with file.open("rb") as content:
        return CREATOR.encode() in content.read(_READ)
