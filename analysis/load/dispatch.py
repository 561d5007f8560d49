"""What kind of report a path is, told by its content, and the loader for it."""

import re
from pathlib import Path
from typing import Final

from nsysflow.analysis.load import canonical, nsys_sqlite
from nsysflow.analysis.load.sqlite_file import MAGIC
from nsysflow.analysis.load.unpack import MAGICS, unpacked
from nsysflow.analysis.trace import Trace
from nsysflow.errors import Damaged, NotAReport, ReportError

_SUFFIXES: Final = re.compile(
    r"(\.sqlite3?|(\.pt)?(\.trace)?\.json|\.nsys-rep|\.qdrep)?(\.xz|\.gz|\.zst)?$"
)
_HEAD_BYTES: Final = 64


def load(path: str | Path, *, nsys: str | None = None) -> Trace:
    """A report as canonical frames, whatever kind of report it is.

    Args:
        path: an nsys SQLite export, plain or compressed (`.xz`, `.gz`, `.zst`); a `parquetdir`
            export; an `.nsys-rep`; a run's directory; or a torch.profiler (Kineto) trace.
        nsys: the nsys to export an `.nsys-rep` with; found by itself when None.

    Raises:
        NotAReport: it is none of these.
        Damaged: it is truncated or corrupt.
        Busy: another program is writing it.
        Incomplete: it lacks a table or column that every export has.
        ReportError: it cannot be read, or not exported.
        OutputError: no space is left to unpack it.
    """
    path = Path(path)
    shown = str(path)
    try:
        return _load_file(path, shown, report_name(path))
    except FileNotFoundError:
        msg = f"{shown} does not exist. List what is there:\n  ls {path.parent}"
        raise NotAReport(msg) from None
    except PermissionError:
        msg = f"{shown} cannot be read: permission denied. Allow it:\n  chmod u+r {shown}"
        raise ReportError(msg) from None


def report_name(path: Path) -> str:
    """A report's name in tables: the file's, without folders and known suffixes."""
    name = path.name or path.resolve().name
    return _SUFFIXES.sub("", name, count=1) or name


def _load_file(path: Path, shown: str, report: str) -> Trace:
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if not head:
        msg = f"{shown} is empty (0 bytes): whatever wrote it did not finish. Write it again."
        raise Damaged(msg)
    for magic, suffix in MAGICS.items():
        if head.startswith(magic):
            with unpacked(path, suffix, shown) as plain:
                return _load_file(plain, shown, report)
    if head.startswith(MAGIC) or MAGIC.startswith(head):
        return canonical.trace_of(nsys_sqlite.read_sqlite(path, shown), report)
    msg = f"{shown} is not a report of a kind that nsysflow knows"
    raise NotAReport(msg)
