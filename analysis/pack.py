"""A copy of a report that is fit to share.

An nsys export holds the traced process's whole environment (tokens too), its command line, its
paths, the host's name and every process on the machine. The copy holds what the analysis reads.
"""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final

from nsysflow.analysis.load.compressed import pack_into
from nsysflow.analysis.load.dispatch import is_json, opened
from nsysflow.analysis.load.nsys_rep import Export
from nsysflow.analysis.load.slim import write_slim
from nsysflow.analysis.load.sqlite_file import MAGIC
from nsysflow.errors import NotAReport, OutputError

_SUFFIXES: Final = (".sqlite.xz", ".sqlite.gz", ".sqlite.zst", ".sqlite")


def pack(report: Path, out: Path, *, export: Export | None = None) -> None:
    """Write a copy of `report` to `out` that analyses to the same numbers; the same bytes always.

    Args:
        report: an nsys SQLite export, plain or compressed, or an `.nsys-rep`.
        out: ends with `.sqlite`, `.sqlite.xz`, `.sqlite.gz` or `.sqlite.zst`. Never half-written.
        export: what exports an `.nsys-rep` (report, SQLite file); without it, that is an error.

    Raises:
        ReportError: the report cannot be loaded, or is of a kind that is no SQLite export.
        OutputError: the copy cannot be written.
    """
    suffix = next((suffix for suffix in _SUFFIXES if out.name.endswith(suffix)), None)
    if suffix is None:
        msg = f"{out} does not say how to write it. End the name with one of {', '.join(_SUFFIXES)}"
        raise OutputError(msg)
    with (
        opened(report, export) as (source, shown),
        TemporaryDirectory(prefix="nsysflow-") as folder,
    ):
        begins = b"" if source.is_dir() else _beginning(source)
        if is_json(begins):
            msg = (
                f"{shown} is a trace of torch.profiler, which cannot be packed: only an export"
                " of nsys can. Record the program with nsys for one:\n"
                "  nsysflow profile --collector nsys -- COMMAND"
            )
            raise NotAReport(msg)
        if begins != MAGIC:
            msg = (
                f"{shown} is no SQLite export, and only those can be packed. Export it:\n"
                "  nsys export --type sqlite REPORT.nsys-rep"
            )
            raise NotAReport(msg)
        if out.exists() and out.samefile(shown):
            msg = (
                f"{out} is the report itself. Give the copy another name:\n"
                f"  nsysflow pack {shown} -o packed-{out.name}"
            )
            raise OutputError(msg)
        slim = Path(folder) / "slim.sqlite"
        with _as_output_errors(out):
            write_slim(source, slim, shown)
            with slim.open("rb") as plain, _beside(out) as packed:
                pack_into(plain, packed, suffix.removeprefix(".sqlite"))


def _beginning(path: Path) -> bytes:
    """As much of a file as tells its kind."""
    with path.open("rb") as file:
        return file.read(len(MAGIC))


@contextmanager
def _beside(out: Path) -> Iterator[IO[bytes]]:
    """A file beside `out` that becomes `out` when all is written, and is gone when not."""
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(out)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


@contextmanager
def _as_output_errors(out: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if "full" not in str(error):
            raise
        raise _no_space(out) from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _no_space(out) from error
        msg = (
            f"{out} cannot be written ({error.strerror}); nothing was. Look at its folder:\n"
            f"  ls -ld {out.parent}"
        )
        raise OutputError(msg) from error


def _no_space(out: Path) -> OutputError:
    return OutputError(
        f"{out} cannot be written: no space is left, there or for temporary files; nothing was"
        " written. See where:\n  df -h"
    )
