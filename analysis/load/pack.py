"""A copy of a report that is safe to share.

An nsys export holds the whole environment of the traced process (tokens too), its command line and
paths, the host's name and all processes of the machine. The copy holds only what the analysis
reads.
"""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Final

from nsysflow.analysis.load.compressed import pack_into
from nsysflow.analysis.load.dispatch import is_json, opened
from nsysflow.analysis.load.nsys_rep import Export
from nsysflow.analysis.load.sqlite.file import MAGIC
from nsysflow.analysis.load.sqlite.slim import write_slim
from nsysflow.analysis.load.temporary import temporary_folder
from nsysflow.base.atomic import staged_file
from nsysflow.base.errors import NotAReport, OutputError, record_again

_SUFFIXES: Final = (".sqlite.xz", ".sqlite.gz", ".sqlite.zst", ".sqlite")


def pack(report: Path, out: Path, *, export: Export | None = None) -> None:
    """Write a copy of `report` to `out` that gives the same numbers; the same bytes every time.

    Args:
        report: an nsys SQLite export, plain or compressed, or an `.nsys-rep`.
        out: ends with `.sqlite`, `.sqlite.xz`, `.sqlite.gz` or `.sqlite.zst`. Written whole or not
            at all.
        export: exports an `.nsys-rep` (report, SQLite file); without it, that is an error.

    Raises:
        ReportError: the report cannot be loaded, or is not an SQLite export.
        OutputError: the copy cannot be written.
    """
    suffix = next((suffix for suffix in _SUFFIXES if out.name.endswith(suffix)), None)
    if suffix is None:
        raise OutputError(
            f"the name {out} does not say how to write the copy",
            f"End it with one of {', '.join(_SUFFIXES)}",
        )
    with (
        opened(report, export) as (source, shown),
        temporary_folder(shown, "packed") as folder,
    ):
        begins = b"" if source.is_dir() else _beginning(source)
        if is_json(begins):
            raise NotAReport(
                f"{shown} is a trace of torch.profiler, and only an SQLite export of nsys can be"
                " packed",
                *record_again(collector="nsys"),
            )
        if begins != MAGIC:
            raise NotAReport(
                f"{shown} is not an SQLite export, and only those can be packed",
                "Export a report",
                "nsys export --type sqlite REPORT.nsys-rep",
            )
        if out.exists() and out.samefile(shown):
            raise OutputError(
                f"{out} is the report itself",
                "Give the copy another name",
                f"nsysflow pack {quote(shown)} -o {quote(f'packed-{out.name}')}",
            )
        slim = folder / "slim.sqlite"
        with _as_output_errors(out):
            write_slim(source, slim, shown)
            with (
                staged_file(out) as scratch,
                slim.open("rb") as plain,
                scratch.open("wb") as packed,
            ):
                pack_into(plain, packed, suffix.removeprefix(".sqlite"))


def _beginning(path: Path) -> bytes:
    """The first bytes of a file, by which SQLite is recognised."""
    with path.open("rb") as file:
        return file.read(len(MAGIC))


@contextmanager
def _as_output_errors(out: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
            raise
        raise _no_space(out) from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _no_space(out) from error
        folder = quote(str(out.parent))
        look = ("Look at its folder", f"ls -ld {folder}")
        make = ("Make its folder", f"mkdir -p {folder}")
        raise OutputError(
            f"{out} cannot be written ({error.strerror}); nothing was",
            *(look if out.parent.is_dir() else make),
        ) from error


def _no_space(out: Path) -> OutputError:
    return OutputError(
        f"{out} was not written: no space is left, there or for temporary files",
        "See where",
        "df -h",
    )
