"""The loader for a path, chosen by the content of the file.

Loaders, and polars with them, are imported once a report is read: a kept answer needs none.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final

from nsysflow.analysis.load.unpacking import (
    MAGICS,
    NSYS_SUFFIXES,
    PERFETTO_SUFFIXES,
    ROCPD_SUFFIX,
    SQLITE_MAGIC,
    Export,
    export_of,
    exported,
    unpacked,
)
from nsysflow.base.errors import Damaged, NotAReport, Remedy, ReportError, record_again
from nsysflow.base.names import report_name

if TYPE_CHECKING:
    from nsysflow.analysis.frames.scratch import Scratch
    from nsysflow.analysis.load.export_tables import Shapes
    from nsysflow.analysis.load.folders import FolderExport
    from nsysflow.analysis.trace import Trace

_PACKED: Final = tuple(MAGICS.values())
_JSON: Final = re.compile(r"\.json(\.xz|\.gz|\.zst)?$")
_IN_A_RUN: Final = (
    "report.sqlite",
    *(f"report.sqlite{suffix}" for suffix in _PACKED),
    "report.nsys-rep",
    "report.pt.trace.json.gz",
)
"""Names of the report in a run's folder; the first that exists is read."""

ENDINGS: Final = (
    *(f"{ending}{packed}" for ending in (".sqlite", ".trace.json") for packed in ("", *_PACKED)),
    *NSYS_SUFFIXES,
    ROCPD_SUFFIX,
    *(f"{ending}{packed}" for ending in PERFETTO_SUFFIXES for packed in ("", *_PACKED)),
)
"""Endings of reports, the most likely first."""

HEAD_BYTES: Final = 512
"""So much of a file is enough to know its format."""

_TAR_MAGIC: Final = slice(257, 262)


def load(
    path: str | Path,
    *,
    export: Export | None = None,
    shapes: "Shapes" = True,
    scratch: "Scratch | None" = None,
) -> "Trace":
    """A report as canonical frames, whatever kind of report it is.

    Args:
        path: an nsys SQLite export, plain or compressed (`.xz`, `.gz`, `.zst`); a `parquetdir` or
            `arrowdir` export; an `.nsys-rep`; a run's folder; a torch.profiler (Kineto) trace; a
            rocpd database of rocprofv3; or a trace in Perfetto's format of torch.profiler,
            rocprofv3 or nsysflow.
        export: exports an `.nsys-rep` (report, SQLite file); without it, that is an error.
        shapes: also read how kernels were launched (grid, block, registers, shared memory), or
            only their grid. The `kernels` table needs all of it, findings need the grid. It is a
            quarter of the time of a big SQLite export.
        scratch: where large frames are kept, these and all made of them; None for memory.

    Raises:
        NotAReport: it is none of these.
        Damaged: it is truncated or corrupt.
        Busy: another program is writing it.
        Incomplete: it lacks a table or column without which idle time would be wrong.
        ReportError: it cannot be read, or not exported.
        OutputError: no space is left to unpack it.
    """
    from nsysflow.analysis.load.export_tables import asked_shapes

    path = Path(path)
    with opened(path, export) as (plain, shown):
        trace = _load(plain, shown, report_name(path), shapes=shapes, scratch=scratch)
        trace = replace(trace, shapes=asked_shapes(trace.shapes, shapes))
        return trace if scratch is None else replace(scratch.kept(trace), scratch=scratch)


def is_report(folder: Path) -> bool:
    """Whether a folder is read as one report: an export of nsys, or the folder of a run."""
    return _export_in(folder) is not None or any((folder / name).is_file() for name in _IN_A_RUN)


def is_json(head: bytes) -> bool:
    """Whether a file that begins with `head` can be a trace of torch.profiler."""
    return head.lstrip()[:1] in (b"{", b"[")


@contextmanager
def opened(path: Path, export: Export | None = None) -> Iterator[tuple[Path, str]]:
    """A report found, unpacked or exported: the path to read, and its name in messages.

    Raises:
        ReportError: it cannot be found, unpacked or exported.
        OutputError: no space is left to unpack it.
    """
    shown = str(path)
    try:
        path = report_at(path)
        shown = str(path)
        with ExitStack() as temporary:
            yield _plain(path, shown, export, temporary), shown
    except FileNotFoundError:
        there = next(folder for folder in path.parents if folder.is_dir())
        raise NotAReport(
            f"{shown} does not exist", "See what is there", f"ls {quote(str(there))}"
        ) from None
    except PermissionError:
        raise ReportError(
            f"{shown} cannot be read: permission denied", "Allow it", f"chmod u+rX {quote(shown)}"
        ) from None


def report_at(path: Path) -> Path:
    """`path`, or the report in it if it is a run's folder.

    Raises:
        NotAReport: it is a folder of something else.
    """
    if path.is_dir() and _export_in(path) is None:
        return _report_in(path)
    return path


def _export_in(folder: Path) -> "FolderExport | None":
    """The kind of nsys's export in a folder; None for a file or another folder."""
    if not folder.is_dir():
        return None
    from nsysflow.analysis.load.folders import folder_export

    return folder_export(folder)


def _report_in(folder: Path) -> Path:
    """The report in a run's folder."""
    for name in _IN_A_RUN:
        if (folder / name).is_file():
            return folder / name
    names = [file.name for file in folder.iterdir()]
    endings = [ending for ending in ENDINGS if any(name.endswith(ending) for name in names)]
    what = f"{folder} is neither an export of nsys nor the folder of a run (with report.sqlite)"
    if endings:
        raise NotAReport(
            what,
            "Name one of the reports in it, or all of them if they are the ranks of one run",
            f"nsysflow analyze {quote(str(folder))}/*{endings[0]}",
        )
    raise NotAReport(
        f"{what}, and holds no report", "See what is there", f"ls {quote(str(folder))}"
    )


def _plain(path: Path, shown: str, export: Export | None, temporary: ExitStack) -> Path:
    """`path`, or a temporary file with its content unpacked or exported."""
    if path.is_dir():
        return path
    head = _head(path, shown)
    for magic, suffix in MAGICS.items():
        if head.startswith(magic) or (shown.endswith(suffix) and magic.startswith(head)):
            return temporary.enter_context(unpacked(path, suffix, shown))
    if shown.endswith(NSYS_SUFFIXES) and not head.startswith(SQLITE_MAGIC):
        return temporary.enter_context(exported(path, shown, export))
    return path


def _load(
    path: Path, shown: str, report: str, *, shapes: "Shapes", scratch: "Scratch | None"
) -> "Trace":
    from nsysflow.analysis.load.canonical import trace_of

    export = _export_in(path)
    if export is not None:
        from nsysflow.analysis.load.folders import read_folder

        return trace_of(read_folder(path, export, shown), report)
    head = _head(path, shown)
    if not (head.startswith(SQLITE_MAGIC) or SQLITE_MAGIC.startswith(head)):
        return _load_other(path, shown, report, head, scratch)
    from nsysflow.analysis.load.rocpd.tables import is_rocpd
    from nsysflow.analysis.load.sqlite import read_sqlite

    if is_rocpd(path, shown):
        from nsysflow.analysis.load.rocpd.read import read_rocpd

        return read_rocpd(path, shown, report, scratch)
    return trace_of(read_sqlite(path, shown, shapes=shapes, scratch=scratch), report, scratch)


def _load_other(
    path: Path, shown: str, report: str, head: bytes, scratch: "Scratch | None"
) -> "Trace":
    """A file that begins with `head` and is no database."""
    from nsysflow.analysis.load.other_formats import not_a_report
    from nsysflow.analysis.load.pftrace.wire import is_pftrace
    from nsysflow.analysis.load.snapshot import is_snapshot, read_snapshot

    if is_pftrace(head):
        from nsysflow.analysis.load.pftrace.read import read_pftrace

        return read_pftrace(path, shown, report, scratch)
    if is_json(head):
        from nsysflow.analysis.load.kineto.read import read_kineto

        return read_kineto(path, shown, report, Path(shown).parent)
    if is_snapshot(head):
        return read_snapshot(path, shown, report)
    if head[_TAR_MAGIC] == b"ustar":
        raise NotAReport(
            f"{shown} is an archive",
            "Unpack it, and analyse the folder or file in it",
            f"tar -xf {quote(shown)}",
        )
    raise not_a_report(path, shown)


def _head(path: Path, shown: str) -> bytes:
    """A file's first bytes.

    Raises:
        NotAReport: it is not a regular file.
        Damaged: it is empty.
    """
    if path.exists() and not path.is_file():
        raise NotAReport(
            f"{shown} is not a regular file, and a report is read more than once",
            "Save its content to a file, and analyse that",
            f"cat {quote(shown)} > REPORT",
        )
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if not head:
        raise Damaged(
            f"{shown} is empty (0 bytes): the program that should have written it did not finish",
            *_again(shown),
        )
    return head


def _again(shown: str) -> Remedy:
    """How to make a report of that name again."""
    if shown.endswith(NSYS_SUFFIXES):
        return record_again()
    if _JSON.search(shown):
        advice, command = record_again(collector="kineto")
        return f"{advice}, and let it end by itself: torch.profiler writes when it stops", command
    return export_of(shown)
