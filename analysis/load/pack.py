"""A copy of a report that is safe to share: only what the analysis reads, nothing about the
machine.
"""

import errno
import html
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from shlex import quote
from typing import Final

import msgspec
import polars as pl

from nsysflow.analysis.frames.source_files import shown_files
from nsysflow.analysis.load.allocator import slim_history
from nsysflow.analysis.load.canonical import threads_read
from nsysflow.analysis.load.dispatch import HEAD_BYTES, is_json, opened
from nsysflow.analysis.load.export_tables import RETURNED, SAMPLED, TABLES, Raw, Table
from nsysflow.analysis.load.labels import nvtx_event_types
from nsysflow.analysis.load.marks import (
    capture_of_mark,
    gpu_states_of_mark,
    gpu_traffic_of_mark,
    graph_ranges_of_mark,
    loader_times_of_mark,
    process_cpu_of_mark,
    thread_cpu_of_mark,
    unix_time_of_mark,
)
from nsysflow.analysis.load.messages import slim_payload
from nsysflow.analysis.load.observations import gave_up_without_guards, observations_without_private
from nsysflow.analysis.load.pftrace.wire import is_pftrace
from nsysflow.analysis.load.private_names import without_private
from nsysflow.analysis.load.rocpd.tables import is_rocpd
from nsysflow.analysis.load.sampled import (
    BACKTRACE,
    GIL_DOMAIN,
    OUT_OF_MEMORY,
    SAMPLE,
    domains_called,
    slim_stack,
    stack_frames,
    wanted_metrics,
)
from nsysflow.analysis.load.sqlite import (
    as_report_errors,
    describe,
    quoted,
    read_sqlite,
    sqlite_uri,
)
from nsysflow.analysis.load.unpacking import (
    SQLITE_MAGIC,
    Export,
    export_of,
    pack_into,
    temporary_folder,
)
from nsysflow.analysis.trace import IMPORT_ERRORS
from nsysflow.base.atomic import staged_file
from nsysflow.base.errors import Damaged, NotAReport, OutputError
from nsysflow.runtime.protocol import KEY

_EXPORT_INFO: Final = "name LIKE 'EXPORT_SCHEMA_VERSION%' OR name LIKE 'EXPORT_PRODUCT%'"
_LOSS_SQL: Final = "loss(CAST(text AS BLOB))"
_STACK_SQL: Final = "stack(CAST(jsonText AS BLOB))"
_PACKED_STACK_SQL: Final = (
    "stack(CAST(coalesce("
    "jsonText, (SELECT value FROM src.StringIds WHERE id = jsonTextId)) AS BLOB))"
)
_PAYLOAD_SQL: Final = "payload(CAST(jsonText AS BLOB))"
_NAME_SQL: Final = "name(CAST(text AS BLOB))"
_HISTORY_SQL: Final = "history(CAST(history AS BLOB))"
_REGISTERED_SQL: Final = "(SELECT value FROM src.StringIds WHERE id = textId)"
_LOSS: Final = re.compile(
    rf"{IMPORT_ERRORS}|\b(lost|dropped|discarded|missing|not all)\b"
    r"|\bcuda events collected\b|\bnot supported by this build\b"
)
_PATH: Final = re.compile(r"\S*[/\\]\S*")


def write_slim(source: Path, target: Path, shown: str) -> None:
    """Copy the export at `source`, which messages call `shown`, to the new file `target`.

    Raises:
        ReportError: the export cannot be loaded, for the reasons that `load` gives.
        sqlite3.OperationalError: the copy cannot be written.
    """
    raw = read_sqlite(source, shown)  # what cannot be loaded is not worth sharing
    uri = sqlite_uri(source, shown)
    with as_report_errors(shown):
        tables, _ = describe(uri)
    present = {name: columns for name, columns in tables.items() if name not in raw.unread}
    with closing(sqlite3.connect(target, isolation_level=None, uri=True)) as db:
        db.execute("PRAGMA journal_mode=OFF")
        db.execute("PRAGMA temp_store=MEMORY")
        db.execute("ATTACH ? AS src", (uri,))
        stacks = _Stacks()
        for name, function in (
            ("stack", stacks.number),
            ("mark", _slim_mark),
            ("name", without_private),
            ("payload", slim_payload),
            ("loss", loss_message),
            ("history", slim_history),
        ):
            db.create_function(name, 1, _on_text(function), deterministic=True)
        db.execute("BEGIN")
        for table in (*TABLES.values(), SAMPLED["gpu_samples"]):
            columns = [name for name in table.columns if name in present.get(table.name, ())]
            if columns and table.name != "StringIds":
                _copy(db, table, columns, raw, present[table.name])
        if "NVTX_EVENTS" in present:
            _copy_marks(db, present, raw)
        _copy_strings(db, present, stacks)
        db.execute("COMMIT")


class _Stacks:
    """The distinct stacks of a report, numbered from 1: samples repeat them a thousand times a
    second."""

    def __init__(self) -> None:
        self._met: dict[str, int | None] = {}
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int | None:
        """The number of a stack's JSON; None if `text` is not one."""
        if text not in self._met:
            slim, following = slim_stack(text), len(self._numbers) + 1
            self._met[text] = None if slim is None else self._numbers.setdefault(slim, following)
        return self._met[text]

    def rows(self, after: int = 0) -> Iterator[tuple[int, str]]:
        """The number and JSON of each stack; numbers begin after `after`."""
        return ((after + number, text) for text, number in self._numbers.items())


def _create(db: sqlite3.Connection, table: Table, columns: list[str], *more: str) -> None:
    typed = [
        f"{quoted(name)} {'TEXT' if table.columns[name] == pl.String else 'INTEGER'}"
        for name in columns
    ]
    db.execute(f"CREATE TABLE main.{quoted(table.name)} ({', '.join((*typed, *more))})")


def _copy(
    db: sqlite3.Connection,
    table: Table,
    columns: list[str],
    raw: Raw,
    there: tuple[str, ...],
) -> None:
    """Copy a table's columns with the rowids, so that rows keep their order.

    Args:
        db: the copy, with the export attached as `src`.
        table: the table to copy.
        columns: the columns to copy.
        raw: the export as frames.
        there: all columns that the export has in this table.
    """
    where, exprs = "1", [quoted(name) for name in columns]
    if table.name == "NVTX_EVENTS":
        of_marks = [*dict.fromkeys((*columns, "text"))]
        _create(db, table, of_marks, "jsonText TEXT", "jsonTextId INTEGER")
        types = nvtx_event_types(raw.event_types)
        kept = (str(number) for name, number in types.items() if name != "NvtxMark")
        where = f"eventType IN ({', '.join(kept)})"
        exprs = [_NAME_SQL if name == "text" else quoted(name) for name in columns]
        if "jsonText" in there:
            columns, exprs = [*columns, "jsonText"], [*exprs, _PAYLOAD_SQL]
    elif table is TABLES["calls"] and not raw.failed_calls.is_empty():
        _create(db, table, columns, f"{RETURNED} INTEGER")
        columns, exprs = [*columns, RETURNED], [*exprs, _failure_sql(raw)]
    else:
        _create(db, table, columns)
    if table.name == "META_DATA_EXPORT":
        where = _EXPORT_INFO
    elif table is TABLES["histories"]:
        exprs = [_HISTORY_SQL if name == "history" else quoted(name) for name in columns]
    elif table.name == "DIAGNOSTIC_EVENT":
        where = f"{_LOSS_SQL} NOT NULL"
        exprs = [_LOSS_SQL if name == "text" else quoted(name) for name in columns]
    elif table.name == "GPU_METRICS":
        wanted = wanted_metrics(raw.gpu_metric_names).select("typeId", "metricId").rows()
        where = f"(typeId, metricId) IN (VALUES {', '.join(map(str, wanted))})" if wanted else "0"
    into = ", ".join(("rowid", *map(quoted, columns)))
    db.execute(
        f"INSERT INTO main.{quoted(table.name)} ({into}) SELECT rowid, {', '.join(exprs)}"
        f" FROM src.{quoted(table.name)} WHERE {where} ORDER BY rowid"
    )


def _failure_sql(raw: Raw) -> str:
    """What a call returned, if it found no memory; else NULL."""
    names = ", ".join(map(str, raw.failed_calls["nameId"].unique().sort()))
    return f"CASE WHEN {RETURNED} = {OUT_OF_MEMORY} AND nameId IN ({names}) THEN {RETURNED} END"


def _copy_marks(db: sqlite3.Connection, present: Mapping[str, tuple[str, ...]], raw: Raw) -> None:
    """Copy the text of our marks, and the stacks of threads that call CUDA or take the GIL, or
    whose CPU time was read. Other marks are left out."""
    columns, mark = present["NVTX_EVENTS"], nvtx_event_types(raw.event_types)["NvtxMark"]
    backtraces, samples, locking = (
        ", ".join(map(str, domains_called(name, raw.nvtx, raw.event_types, raw.strings)))
        for name in (BACKTRACE, SAMPLE, GIL_DOMAIN)
    )
    into = ", ".join(name for name in ("start", "globalTid", "domainId") if name in columns)
    stack = _PACKED_STACK_SQL if "jsonTextId" in columns else _STACK_SQL
    stack = stack if "jsonText" in columns else "NULL"
    text = "text" if "text" in columns else "NULL"
    text = f"coalesce({text}, {_REGISTERED_SQL})" if "textId" in columns else text
    ours = f"mark(CAST({text} AS BLOB))"
    calling = "SELECT globalTid FROM src.CUPTI_ACTIVITY_KIND_RUNTIME"
    calls = f"globalTid IN ({calling})" if "CUPTI_ACTIVITY_KIND_RUNTIME" in present else "0"
    if "domainId" in columns:
        taking = f"SELECT globalTid FROM src.NVTX_EVENTS WHERE domainId IN ({locking})"
        read = ", ".join(map(str, threads_read(raw)))
        calls = f"({calls} OR globalTid IN ({taking}) OR globalTid IN ({read}))"
    sampled = f"domainId IN ({samples})" if "domainId" in columns else "0"
    traced = f"domainId IN ({backtraces})" if "domainId" in columns else "0"
    db.execute(
        f"INSERT INTO main.NVTX_EVENTS (rowid, eventType, {into}, jsonTextId, text)"
        f" SELECT * FROM (SELECT rowid, eventType, {into}, {stack} AS stack, {ours} AS ours"
        f" FROM src.NVTX_EVENTS WHERE eventType = {mark} AND (NOT {sampled} OR {calls}))"
        f" WHERE stack NOT NULL OR ours NOT NULL OR {traced} OR {sampled} ORDER BY rowid"
    )


def _copy_strings(
    db: sqlite3.Connection, present: Mapping[str, tuple[str, ...]], stacks: _Stacks
) -> None:
    """Copy the strings that the copied rows use, and the stacks; source files get short names.

    Of strings with one number the first counts, as in `load`.
    """
    db.execute("CREATE TEMP TABLE named (id INTEGER PRIMARY KEY)")
    db.execute("CREATE TEMP TABLE files (id INTEGER PRIMARY KEY, value TEXT)")
    for table, column in _string_ids(present):
        ids = f"SELECT {quoted(column)} FROM main.{quoted(table)} WHERE {quoted(column)} NOT NULL"
        db.execute(f"INSERT OR IGNORE INTO named {ids}")
    frames = {frame for _, text in stacks.rows() for frame in stack_frames(text)}
    files, functions = ({(frame[at],) for frame in frames} for at in (0, 2))
    db.executemany("INSERT INTO files (id) VALUES (?)", files)
    db.executemany("INSERT OR IGNORE INTO named VALUES (?)", functions)
    _shorten_files(db)
    db.execute("CREATE TEMP TABLE texts (id INTEGER PRIMARY KEY)")
    if "textId" in present.get("NVTX_EVENTS", ()):
        ids = "SELECT textId FROM main.NVTX_EVENTS WHERE textId NOT NULL"
        db.execute(f"INSERT OR IGNORE INTO texts {ids}")
    db.execute("CREATE TABLE main.StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
    db.execute(
        "INSERT OR IGNORE INTO main.StringIds SELECT id, coalesce(files.value,"
        " CASE WHEN id IN texts THEN name(CAST(s.value AS BLOB)) END, s.value)"
        " FROM src.StringIds AS s LEFT JOIN files USING (id)"
        " WHERE id IN named OR files.value NOT NULL ORDER BY id, s.rowid"
    )
    last = f"SELECT coalesce(max(id), 0) FROM main.StringIds WHERE id < {1 << 31}"
    (last_id,) = db.execute(last).fetchone()
    db.executemany("INSERT INTO main.StringIds VALUES (?, ?)", stacks.rows(last_id))
    if "NVTX_EVENTS" in present:
        db.execute("UPDATE main.NVTX_EVENTS SET jsonTextId = jsonTextId + ?", (last_id,))


def _shorten_files(db: sqlite3.Connection) -> None:
    """Give source files the names that the analysis shows, so that the copy shows the same."""
    rows = db.execute(
        "SELECT id, CAST(value AS BLOB) FROM src.StringIds WHERE id IN (SELECT id FROM files)"
    )
    paths = {number: html.unescape(raw.decode("utf-8", "replace")) for number, raw in rows}
    names = shown_files(paths.values())
    db.executemany(
        "UPDATE files SET value = ? WHERE id = ?",
        [(html.escape(names[path], quote=False), number) for number, path in paths.items()],
    )


def _string_ids(present: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """The tables and columns that name a string by its id."""
    for table in TABLES.values():
        for column, dtype in table.columns.items():
            if dtype == pl.UInt32 and column != "id" and column in present.get(table.name, ()):
                yield table.name, column


def loss_message(text: str) -> str | None:
    """A message on lost events or a failed import, without paths; None for any other message."""
    return _PATH.sub("(path)", text) if _LOSS.search(text) else None


def _slim_mark(text: str) -> str | None:
    """A mark with only the parts that may be shared; None if it is not ours."""
    kinds = (
        capture_of_mark,
        graph_ranges_of_mark,
        gpu_states_of_mark,
        gpu_traffic_of_mark,
        thread_cpu_of_mark,
        process_cpu_of_mark,
        loader_times_of_mark,
        unix_time_of_mark,
        gave_up_without_guards,
        observations_without_private,
    )
    mark = next((mark for read in kinds if (mark := read(text)) is not None), None)
    return None if mark is None else msgspec.json.encode({KEY: mark}).decode()


def _on_text(
    function: Callable[[str], str | int | None],
) -> Callable[[object], str | int | None]:
    """`function` for SQL, which passes bytes that need not be UTF-8."""

    def of_bytes(value: object) -> str | int | None:
        return function(value.decode("utf-8", "replace")) if isinstance(value, bytes) else None

    return of_bytes


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
            f"End it with one of {', '.join(_SUFFIXES)}; of other traces than nsys's, with"
            " .pftrace.xz",
        )
    with opened(report, export) as (source, shown):
        _require_export(source, shown)

        def write(slim: Path) -> None:
            try:
                write_slim(source, slim, shown)
            except sqlite3.IntegrityError as error:  # a damaged table gives two rows one number
                raise Damaged(
                    f"{shown} is corrupt: SQLite says: {error}", *export_of(shown)
                ) from error

        write_copy(shown, out, suffix.removeprefix(".sqlite"), write)


def write_copy(shown: str, out: Path, suffix: str, write: Callable[[Path], None]) -> None:
    """Write a copy of a report, whole or not at all.

    Args:
        shown: the report, as messages call it.
        out: the copy.
        suffix: how it is compressed, e.g. `.xz`; empty if it is not.
        write: writes it to a file, not compressed.

    Raises:
        OutputError: it cannot be written, or is the report itself.
    """
    if out.exists() and out.samefile(shown):
        raise OutputError(
            f"{out} is the report itself",
            "Give the copy another name",
            f"nsysflow pack {quote(shown)} -o {quote(f'packed-{out.name}')}",
        )
    with temporary_folder(shown, "packed") as folder, _as_output_errors(out):
        plain = folder / "plain"
        write(plain)
        with staged_file(out) as scratch, plain.open("rb") as source, scratch.open("wb") as packed:
            pack_into(source, packed, suffix)


def _require_export(source: Path, shown: str) -> None:
    """Refuse what is no SQLite export of nsys.

    Raises:
        NotAReport: it is a trace of another tool, or something else.
    """
    begins = b"" if source.is_dir() else _beginning(source)
    what = None
    if is_json(begins):
        what = "a trace of torch.profiler"
    elif is_pftrace(begins):
        what = "a trace in Perfetto's format"
    elif begins.startswith(SQLITE_MAGIC) and is_rocpd(source, shown):
        what = "a database of rocprofv3"
    if what is not None:
        raise NotAReport(
            f"{shown} is {what}, and only an SQLite export of nsys can be packed as one",
            "Pack it in Perfetto's format, which nsysflow reads too",
            f"nsysflow pack {quote(shown)} -o packed.pftrace.xz",
        )
    if not begins.startswith(SQLITE_MAGIC):
        raise NotAReport(
            f"{shown} is not an SQLite export, and only those can be packed",
            "Export a report",
            "nsys export --type sqlite REPORT.nsys-rep",
        )


def _beginning(path: Path) -> bytes:
    """The first bytes of a file, by which its format is recognised."""
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)


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
