"""Run nsys, and export what it recorded."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Final

from nsysflow.base.atomic import staged_file
from nsysflow.base.errors import CaptureError, Damaged, OutputError
from nsysflow.nsys.argv import export_argv
from nsysflow.nsys.find import find
from nsysflow.nsys.program import Nsys

DISK_FULL: Final = ("disk is full", "no space left on device")
"""The words of SQLite and of the system. nsys prints them when it exports, and still exits with 0
(2023.4, docs/facts.md)."""

_SQLITE: Final = b"SQLite format 3\0"
_LAST_WORDS: Final = 40


def export(nsys: Nsys, report: Path, out: Path, *, json: bool = False) -> None:
    """Export an `.nsys-rep` to SQLite as `out`, whole or not at all; an older `out` is replaced.

    Args:
        nsys: the nsys to use.
        report: the `.nsys-rep`.
        out: the SQLite file.
        json: export events' JSON too, which holds the Python frames of CUDA calls.

    Raises:
        Damaged: nsys cannot export the report.
        OutputError: no space is left, or `out` cannot be written.
        CaptureError: nsys does not start.
    """
    try:
        with staged_file(out) as scratch:
            done = run_nsys(nsys, export_argv(nsys, report.resolve(), scratch, json=json))
            output = done.stderr + done.stdout
            if any(words in output.lower() for words in DISK_FULL):
                raise _disk_full(report, out)
            if done.returncode or not _is_sqlite(scratch):
                raise _not_exported(report, done.returncode, output)
    except OSError as error:
        raise OutputError(
            f"{out} cannot be written ({error.strerror}), so {report} was not exported",
            "Look at its folder",
            f"ls -ld {quote(str(out.parent))}",
        ) from error


def exporter(asked: Path | None) -> Callable[[Path, Path], None]:
    """A function that exports a report to a file, for the loader. It looks for nsys when it is
    called, so it raises what `find` and `export` raise."""

    def export_found(report: Path, out: Path) -> None:
        export(find(asked), report, out, json=True)

    return export_found


def run_nsys(
    nsys: Nsys, argv: list[str], *, within_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run nsys to its end and return its output.

    Raises:
        CaptureError: nsys does not start.
        subprocess.TimeoutExpired: it did not end in time.
    """
    try:
        return subprocess.run(
            argv,
            capture_output=True,
            text=True,
            check=False,
            errors="replace",
            env={**os.environ, **nsys.environment()},
            stdin=subprocess.DEVNULL,
            timeout=within_s,
        )
    except OSError as error:
        raise CaptureError(
            f"{nsys.path} does not start: {error.strerror}",
            "See it for yourself",
            f"{quote(str(nsys.path))} --version",
        ) from error


def _is_sqlite(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _disk_full(report: Path, out: Path) -> OutputError:
    free, needed = shutil.disk_usage(out.parent).free, report.stat().st_size
    return OutputError(
        f"{report} was not exported: no space is left in {out.parent} ({free / 1e6:,.0f} MB free,"
        f" and the export takes more than the report's {needed / 1e6:,.0f} MB)",
        "Make room",
        "df -h",
    )


def last_words(output: str) -> str:
    """The end of nsys's output, without its progress bars."""
    lines = [line for line in output.splitlines() if "%" not in line]  # \r ends a line too
    return " ".join(" ".join(lines).split()[-_LAST_WORDS:]) or "nothing"


def _not_exported(report: Path, code: int, output: str) -> Damaged:
    return Damaged(
        f"{report} cannot be exported: nsys ended with {code} and said: {last_words(output)}",
        "See it for yourself",
        f"nsys export --type sqlite {quote(str(report))}",
    )
