"""What kind of report a path is, told by its content, and the loader for it."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from nsysflow.analysis.load import canonical, kineto, nsys_rep, nsys_sqlite, parquetdir
from nsysflow.analysis.load.compressed import MAGICS, unpacked
from nsysflow.analysis.load.sqlite_file import MAGIC
from nsysflow.analysis.trace import Trace
from nsysflow.errors import Damaged, NotAReport, ReportError

_PACKED: Final = tuple(MAGICS.values())
_SUFFIXES: Final = re.compile(
    r"(\.sqlite3?|(\.pt)?(\.trace)?\.json|\.nsys-rep|\.qdrep)?(\.xz|\.gz|\.zst)?$"
)
_JSON: Final = re.compile(r"\.json(\.xz|\.gz|\.zst)?$")
_IN_A_RUN: Final = (
    "report.sqlite",
    *(f"report.sqlite{suffix}" for suffix in _PACKED),
    "report.nsys-rep",
    "report.pt.trace.json.gz",
)
"""What a run's directory calls its report; the first that exists is taken."""

_ENDINGS: Final = (
    *(f"{ending}{packed}" for ending in (".sqlite", ".trace.json") for packed in ("", *_PACKED)),
    *nsys_rep.SUFFIXES,
)
"""Of reports in a folder, the likeliest first."""

_HEAD_BYTES: Final = 512
_TAR_MAGIC: Final = slice(257, 262)


def load(path: str | Path, *, export: nsys_rep.Export | None = None, shapes: bool = True) -> Trace:
    """A report as canonical frames, whatever kind of report it is.

    Args:
        path: an nsys SQLite export, plain or compressed (`.xz`, `.gz`, `.zst`); a `parquetdir`
            export; an `.nsys-rep`; a run's directory; or a torch.profiler (Kineto) trace.
        export: what exports an `.nsys-rep` (report, SQLite file); without it, that is an error.
        shapes: also read how kernels were launched (grid, block, registers, shared memory), which
            only the `kernels` table shows: a quarter of the time that a big SQLite export takes.

    Raises:
        NotAReport: it is none of these.
        Damaged: it is truncated or corrupt.
        Busy: another program is writing it.
        Incomplete: it lacks a table or column that every export has.
        ReportError: it cannot be read, or not exported.
        OutputError: no space is left to unpack it.
    """
    path = Path(path)
    with opened(path, export) as (plain, shown):
        return _load(plain, shown, report_name(path), shapes=shapes)


def is_json(head: bytes) -> bool:
    """Whether a file that begins so can be a trace of torch.profiler."""
    return head.lstrip()[:1] in (b"{", b"[")


@contextmanager
def opened(path: Path, export: nsys_rep.Export | None = None) -> Iterator[tuple[Path, str]]:
    """A report found in its folder, unpacked or exported: what to read, and its name in messages.

    Raises:
        ReportError: as `load` does, but for what only reading it tells.
        OutputError: no space is left to unpack it.
    """
    shown = str(path)
    try:
        if path.is_dir() and not parquetdir.is_parquetdir(path):
            path = _report_in(path)
            shown = str(path)
        with ExitStack() as temporary:
            yield _plain(path, shown, export, temporary), shown
    except FileNotFoundError:
        msg = f"{shown} does not exist. See what is there:\n  ls {path.parent}"
        raise NotAReport(msg) from None
    except PermissionError:
        msg = f"{shown} cannot be read: permission denied. Allow it:\n  chmod u+r {shown}"
        raise ReportError(msg) from None


def report_name(path: Path) -> str:
    """A report's name in tables: the file's, without folders and known suffixes."""
    name = path.name or path.resolve().name
    return _SUFFIXES.sub("", name, count=1) or name


def _report_in(folder: Path) -> Path:
    """The report of a run's directory."""
    for name in _IN_A_RUN:
        if (folder / name).is_file():
            return folder / name
    names = [each.name for each in folder.iterdir()]
    held = [ending for ending in _ENDINGS if any(name.endswith(ending) for name in names)]
    what = f"{folder} is neither a parquetdir export nor a run's directory (with report.sqlite)"
    if held:
        msg = (
            f"{what}. Name one of the reports in it, or all if they are the ranks of one run:\n"
            f"  nsysflow analyze {folder}/*{held[0]}"
        )
        raise NotAReport(msg)
    raise NotAReport(f"{what}, and holds no report. See what is there:\n  ls {folder}")


def _plain(path: Path, shown: str, export: nsys_rep.Export | None, temporary: ExitStack) -> Path:
    """`path`, or what it holds in a temporary file."""
    if path.is_dir():
        return path
    head = _head(path, shown)
    for magic, suffix in MAGICS.items():
        if head.startswith(magic) or (shown.endswith(suffix) and magic.startswith(head)):
            return temporary.enter_context(unpacked(path, suffix, shown))
    if shown.endswith(nsys_rep.SUFFIXES) and not head.startswith(MAGIC):
        return temporary.enter_context(nsys_rep.exported(path, shown, export))
    return path


def _load(path: Path, shown: str, report: str, *, shapes: bool) -> Trace:
    if path.is_dir():
        return canonical.trace_of(parquetdir.read_parquetdir(path, shown), report)
    head = _head(path, shown)
    if head.startswith(MAGIC) or MAGIC.startswith(head):
        return canonical.trace_of(nsys_sqlite.read_sqlite(path, shown, shapes=shapes), report)
    if is_json(head):
        return kineto.read_kineto(path, shown, report)
    if head[_TAR_MAGIC] == b"ustar":
        msg = (
            f"{shown} is an archive. Unpack it, and analyse the folder or file in it:\n"
            f"  tar -xf {shown}"
        )
        raise NotAReport(msg)
    msg = (
        f"{shown} is not an SQLite file, nor any other report that nsysflow reads (.nsys-rep,"
        " parquetdir, a torch.profiler trace). Export a report:\n"
        "  nsys export --type sqlite REPORT.nsys-rep"
    )
    raise NotAReport(msg)


def _head(path: Path, shown: str) -> bytes:
    """A file's first bytes.

    Raises:
        Damaged: there are none.
    """
    if path.exists() and not path.is_file():
        msg = f"{shown} is not a file that can be read twice. Give a regular file:\n  ls -l {shown}"
        raise NotAReport(msg)
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if not head:
        msg = (
            f"{shown} is empty (0 bytes): what should have written it did not finish."
            f" {_again(shown)}"
        )
        raise Damaged(msg)
    return head


def _again(shown: str) -> str:
    """How a report of that name is made once more."""
    if shown.endswith(nsys_rep.SUFFIXES):
        return "Record the program again:\n  nsysflow profile -- COMMAND"
    if _JSON.search(shown):
        return (
            "torch.profiler writes it when it stops. Record the program again, and let it end by"
            " itself:\n  nsysflow profile --collector kineto -- COMMAND"
        )
    return (
        "Export the report again:\n"
        "  nsys export --type sqlite --force-overwrite=true REPORT.nsys-rep"
    )
