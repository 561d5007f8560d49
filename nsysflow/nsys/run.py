"""Run nsys, and export what it recorded."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from nsysflow.errors import CaptureError, Damaged, OutputError
from nsysflow.nsys.argv import export_argv
from nsysflow.nsys.find import find
from nsysflow.nsys.program import Nsys

DISK_FULL: Final = ("disk is full", "no space left on device")
"""How SQLite and the system say it. nsys passes that on and, exporting, ends with 0 all the same
(2023.4, docs/facts.md)."""

_SQLITE: Final = b"SQLite format 3\0"
_LAST_WORDS: Final = 40


def export(nsys: Nsys, report: Path, out: Path, *, json: bool = False) -> None:
    """Export an `.nsys-rep` to SQLite as `out`, all or nothing; what was there is replaced.

    Args:
        nsys: what to do it with.
        report: the `.nsys-rep`.
        out: the SQLite file.
        json: also events' JSON, where the Python frames of CUDA calls are.

    Raises:
        Damaged: nsys cannot export it.
        OutputError: no space is left, or `out` cannot be written.
        CaptureError: nsys does not start.
    """
    try:
        with TemporaryDirectory(prefix=".nsysflow-", dir=out.parent) as folder:
            scratch = Path(folder) / "report.sqlite"
            done = run_nsys(nsys, export_argv(nsys, report.resolve(), scratch, json=json))
            said = done.stderr + done.stdout
            if any(words in said.lower() for words in DISK_FULL):
                raise _disk_full(report, out)
            if done.returncode or not _is_sqlite(scratch):
                raise _not_exported(report, done.returncode, said)
            scratch.replace(out)
    except OSError as error:
        msg = (
            f"{out} cannot be written ({error.strerror}), so {report} was not exported. Look at its"
            f" folder:\n  ls -ld {out.parent}"
        )
        raise OutputError(msg) from error


def exporter(asked: Path | None) -> Callable[[Path, Path], None]:
    """What the loader needs for an `.nsys-rep`: a function that exports `report` to `out`. It
    looks for nsys when it is called, and so raises what `find` and `export` raise."""

    def export_found(report: Path, out: Path) -> None:
        export(find(asked), report, out, json=True)

    return export_found


def run_nsys(
    nsys: Nsys, argv: list[str], *, within_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, with what it says kept back.

    Raises:
        CaptureError: it does not start.
        subprocess.TimeoutExpired: it did not end `within_s`.
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
        msg = (
            f"{nsys.path} does not start: {error.strerror}. See what it says by hand:\n"
            f"  {nsys.path} --version"
        )
        raise CaptureError(msg) from error


def _is_sqlite(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _disk_full(report: Path, out: Path) -> OutputError:
    free, needed = shutil.disk_usage(out.parent).free, report.stat().st_size
    return OutputError(
        f"{report} was not exported: no space is left in {out.parent} ({free / 1e6:,.0f} MB free;"
        f" the report itself has {needed / 1e6:,.0f} MB, its export more). See where:\n  df -h"
    )


def last_words(said: str) -> str:
    """The end of what nsys said, without its progress bars."""
    lines = [line for line in said.splitlines() if "%" not in line]  # \r ends a line here, too
    return " ".join(" ".join(lines).split()[-_LAST_WORDS:]) or "nothing"


def _not_exported(report: Path, code: int, said: str) -> Damaged:
    return Damaged(
        f"{report} cannot be exported: nsys ended with {code} and said: {last_words(said)}. See"
        f" what it says by hand:\n  nsys export --type sqlite {report}"
    )
