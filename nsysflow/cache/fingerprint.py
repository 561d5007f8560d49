"""What tells one report from another without reading all of it, and one loader from the next."""

import os
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

import polars as pl

import nsysflow
from nsysflow.analysis.load.dispatch import report_at
from nsysflow.analysis.load.nsys_rep import SUFFIXES
from nsysflow.base.errors import ReportError

_SAMPLE_BYTES: Final = 1 << 16
"""So much of a file's head, middle and tail is read: 0.3 ms, however long the file is."""

_KEY_BYTES: Final = 16

_JOURNALS: Final = ("-wal", "-journal")

LOADER: Final = (
    "__init__.py",
    "analysis/__init__.py",
    "analysis/declared/*.py",
    "analysis/frames/*.py",
    "analysis/load/**/*",
    "analysis/schema.py",
    "analysis/short_repr.py",
    "analysis/trace.py",
    "cache/frames.py",
    "errors.py",
    "nsys/argv.py",
    "nsys/run.py",
    "peaks.py",
    "report_names.py",
    "runtime/__init__.py",
    "runtime/inject/*.py",
    "runtime/protocol.py",
    "runtime/range_names.py",
)
"""The sources that decide what a report's frames hold: schemas, the loaders, what they use."""


def fingerprint(path: Path, nsys: Path | None) -> str | None:
    """What tells a report from others: its size, time of change and samples of its content.

    It is the same on another path to the same file.

    Args:
        path: as `load` takes it.
        nsys: the nsys that was asked for to export an `.nsys-rep`.

    Returns:
        None where there is no such report, or where a program may still be writing it.
    """
    digest = blake2b(digest_size=_KEY_BYTES)
    try:
        report = report_at(path)
        if report.name.endswith(SUFFIXES):  # another nsys may export other rows
            digest.update(repr((nsys, os.environ.get("NSYSFLOW_NSYS"))).encode())
        for part in _identity(report):
            digest.update(part)
    except (OSError, ReportError):  # the loader says it better
        return None
    return None if _is_written(report) else digest.hexdigest()


@cache
def loader_version() -> str:
    """The version of what makes frames of a report: nobody has to remember to raise it."""
    return version_of(LOADER)


def version_of(sources: Sequence[str]) -> str:
    """A checksum of sources of ours, named by patterns, and of the versions below them."""
    digest = blake2b(f"{nsysflow.__version__} {pl.__version__}".encode(), digest_size=_KEY_BYTES)
    root = Path(nsysflow.__file__).parent
    for file in sorted({file for pattern in sources for file in root.glob(pattern)}):
        if file.suffix in (".py", ".toml"):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _identity(report: Path) -> Iterator[bytes]:
    """What identifies a file, or the files of a folder."""
    files = sorted(report.iterdir()) if report.is_dir() else [report]
    for file in files:
        if report.is_dir():
            yield file.name.encode("utf-8", "surrogateescape")
        with file.open("rb") as content:
            seen = os.fstat(content.fileno())
            yield repr((seen.st_size, seen.st_mtime_ns)).encode()
            for start in (0, seen.st_size // 2, seen.st_size - _SAMPLE_BYTES):
                content.seek(max(start, 0))
                yield content.read(_SAMPLE_BYTES)


def _is_written(report: Path) -> bool:
    """Whether SQLite keeps changes of the file beside it: the loader then refuses to read it."""
    real = report.resolve()
    beside = (real.with_name(real.name + journal) for journal in _JOURNALS)
    return any(file.is_file() and file.stat().st_size for file in beside)
