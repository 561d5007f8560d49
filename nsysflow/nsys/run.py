"""Run nsys: export what it recorded, and try whether it records and exports at all."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Final

from nsysflow.analysis.load import load
from nsysflow.analysis.load.allocator import History, add_histories
from nsysflow.base.atomic import scratch_folder, staged_file
from nsysflow.base.errors import CaptureError, Damaged, NsysflowError, OutputError
from nsysflow.nsys.installations import find_nsys
from nsysflow.nsys.program import (
    Nsys,
    Recording,
    export_argv,
    is_script,
    output_of,
    profile_argv,
    target_folder,
)

DISK_FULL: Final = ("disk is full", "no space left on device")
"""The words of SQLite and of the system. nsys prints them when it exports, and still exits with 0
(2023.4, docs/facts.md)."""

_SQLITE: Final = b"SQLite format 3\0"
_LAST_WORDS: Final = 40


def export(
    nsys: Nsys,
    report: Path,
    out: Path,
    *,
    json: bool = False,
    histories: Sequence[History] = (),
) -> None:
    """Export an `.nsys-rep` to SQLite as `out`, whole or not at all; an older `out` is replaced.

    Args:
        nsys: the nsys to use.
        report: the `.nsys-rep`.
        out: the SQLite file.
        json: export events' JSON too, which holds the Python frames of CUDA calls.
        histories: what PyTorch's allocator did in its processes, to add to it.

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
            if histories:
                add_histories(scratch, histories)
    except sqlite3.Error as error:
        raise _disk_full(report, out) from error
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
        export(find_nsys(asked), report, out, json=True)

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


IMPORTER: Final = "QdstrmImporter"
"""The program that turns what nsys recorded into an `.nsys-rep`; nsys starts it."""


@dataclass(frozen=True, kw_only=True)
class ImporterProblem:
    """Why nsys will not write a report.

    Attributes:
        text: the reason, half a sentence.
        libraries: the shared libraries that the system lacks; empty if the importer itself does.
    """

    text: str
    libraries: tuple[str, ...] = ()


def importer_problem(nsys: Nsys) -> ImporterProblem | None:
    """Why nsys will not write a report; None if nothing is known to be wrong.

    A launcher script may set library paths, so the libraries behind one are not checked.
    """
    target = target_folder(nsys.path)
    if target is None:
        return None
    importer = next(target.parent.glob(f"host-linux-*/{IMPORTER}"), None)
    if importer is None:
        text = f"its importer is missing: there is no host-linux-*/{IMPORTER} in {target.parent}"
        return ImporterProblem(text=text)
    if is_script(nsys.path.resolve()):
        return None
    missing = _missing_libraries(importer, nsys)
    if not missing:
        return None
    return ImporterProblem(
        text=f"its importer lacks libraries: {', '.join(missing)}", libraries=missing
    )


def _missing_libraries(importer: Path, nsys: Nsys) -> tuple[str, ...]:
    if shutil.which("ldd") is None:
        return ()
    done = subprocess.run(
        ["ldd", str(importer)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **nsys.environment()},
    )
    missing = {line.split()[0] for line in done.stdout.splitlines() if "not found" in line}
    return tuple(sorted(missing))


RANGE: Final = "nsysflow doctor"
WITHIN_S: Final = 60
"""nsys 2023.4 takes one second for such a program, on two busy cores three."""

ATTEMPTS: Final = 3
"""nsys 2023.4 crashed about once in 70 runs on a busy machine (docs/facts.md)."""

_SAMPLING: Final = re.compile(r"Environment \(process-tree\): (\w+)")

_PROGRAM: Final = f"""
try:
    import nvtx
except ImportError:
    raise SystemExit
with nvtx.annotate({RANGE!r}):
    pass
"""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The result of a trial.

    Attributes:
        problem: why there was no report; None if there was one.
        ranges: whether the report has the range that the program opened through `nvtx`.
    """

    problem: str | None = None
    ranges: bool = False


def may_sample(nsys: Nsys) -> bool | None:
    """Whether nsys may sample the CPU, by its own account; None if it does not say."""
    match = _SAMPLING.search(output_of(nsys.path, "status", "--environment"))
    return match[1] == "OK" if match else None


def try_nsys(nsys: Nsys) -> Trial:
    """Let nsys record a range of this Python, in a temporary folder."""
    for _ in range(ATTEMPTS):
        with scratch_folder() as folder:
            trial = _attempt(nsys, folder)
        if trial.problem is None:
            break
    return trial


def _attempt(nsys: Nsys, folder: Path) -> Trial:
    recording = Recording(out=folder / "trial", trace=("nvtx",))
    report, exported = folder / "trial.nsys-rep", folder / "trial.sqlite"
    argv = profile_argv(nsys, recording, [sys.executable, "-P", "-c", _PROGRAM])
    try:
        done = run_nsys(nsys, argv, within_s=WITHIN_S)
    except subprocess.TimeoutExpired:
        return Trial(problem=f"a trial run did not end within {WITHIN_S} s")
    except CaptureError as error:
        return Trial(problem=error.seen)
    if done.returncode or not report.is_file():
        said = last_words(done.stdout + done.stderr)
        text = f"a trial run ended with {done.returncode} and no report; nsys said: {said}"
        return Trial(problem=text)
    try:
        export(nsys, report, exported)
        names = load(exported).ranges["name"].to_list()
    except NsysflowError as error:
        return Trial(problem=error.seen)
    return Trial(ranges=RANGE in names)
