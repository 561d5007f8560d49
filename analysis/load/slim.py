"""A slim copy of an SQLite export: what the analysis reads, and nothing of the traced machine.

The other half of the project's SQL, next to `nsys_sqlite`, which reads. Rows keep their order and
ids their numbers, so that the copy loads as the original does.
"""

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

import polars as pl

from nsysflow.analysis.load.labels import nvtx_event_types
from nsysflow.analysis.load.nsys_sqlite import as_report_errors, describe, quoted, read_sqlite
from nsysflow.analysis.load.raw import TABLES, Raw, Table
from nsysflow.analysis.load.sqlite_file import sqlite_uri

_BACKTRACE: Final = "Python Backtrace on CUDA"
_LIBRARY: Final = re.compile(r"(?:^|/)((?:site|dist)-packages/.*|lib/python3[^/]*/.*)$")
_EXPORT_INFO: Final = "name LIKE 'EXPORT_SCHEMA_VERSION%' OR name LIKE 'EXPORT_PRODUCT%'"
_LOSS_SQL: Final = "loss(CAST(text AS BLOB))"
_FRAMES_SQL: Final = "frames(CAST(jsonText AS BLOB))"
_LOSS: Final = re.compile(r"(?i)\b(lost|dropped|discarded|missing|not all)\b")
_PATH: Final = re.compile(r"\S*[/\\]\S*")

_SAMPLES: Final = (
    Table(
        name="GPU_METRICS",
        columns=pl.Schema(dict.fromkeys(("timestamp", "typeId", "metricId", "value"), pl.Int64())),
        required=("timestamp",),
    ),
    Table(
        name="TARGET_INFO_GPU_METRICS",
        columns=pl.Schema(
            {"typeId": pl.Int64(), "metricId": pl.Int64(), "metricName": pl.String()}
        ),
        required=("typeId",),
    ),
)
"""Sampled GPU counters: no loader reads them yet, the analysis of spec §10 will."""


def write_slim(source: Path, target: Path, shown: str) -> None:
    """Copy the export at `source`, which messages call `shown`, to the new file `target`.

    Raises:
        ReportError: the export cannot be loaded, for the reasons that `load` gives.
        sqlite3.OperationalError: the copy cannot be written.
    """
    raw = read_sqlite(source, shown)  # what cannot be loaded is not worth sharing
    uri = sqlite_uri(source, shown)
    with as_report_errors(shown):
        present, _ = describe(uri)
    with closing(sqlite3.connect(target, isolation_level=None, uri=True)) as db:
        db.execute("PRAGMA journal_mode=OFF")
        db.execute("PRAGMA temp_store=MEMORY")
        db.execute("ATTACH ? AS src", (uri,))
        for name, function in (("frames", _frames), ("shortened", shortened), ("loss", _loss)):
            db.create_function(name, 1, _on_text(function), deterministic=True)
        db.execute("BEGIN")
        for table in (*TABLES.values(), *_SAMPLES):
            columns = [name for name in table.columns if name in present.get(table.name, ())]
            if columns and table.name != "StringIds":
                _copy(db, table, columns, raw)
        if "jsonText" in present.get("NVTX_EVENTS", ()):
            _copy_backtraces(db, present["NVTX_EVENTS"])
        _copy_strings(db, present)
        db.execute("COMMIT")


def _create(db: sqlite3.Connection, table: Table, columns: list[str], *more: str) -> None:
    typed = [
        f"{quoted(name)} {'TEXT' if table.columns[name] == pl.String else 'INTEGER'}"
        for name in columns
    ]
    db.execute(f"CREATE TABLE main.{quoted(table.name)} ({', '.join((*typed, *more))})")


def _copy(db: sqlite3.Connection, table: Table, columns: list[str], raw: Raw) -> None:
    """Copy a table's columns with the rowids, so that rows keep their order."""
    where, exprs = "1", [quoted(name) for name in columns]
    if table.name == "NVTX_EVENTS":
        _create(db, table, columns, "jsonText TEXT")
        where = f"eventType IN ({', '.join(map(str, nvtx_event_types(raw.event_types).values()))})"
    else:
        _create(db, table, columns)
    if table.name == "META_DATA_EXPORT":
        where = _EXPORT_INFO
    elif table.name == "DIAGNOSTIC_EVENT":
        where = f"{_LOSS_SQL} NOT NULL"
        exprs = [_LOSS_SQL if name == "text" else quoted(name) for name in columns]
    into = ", ".join(("rowid", *map(quoted, columns)))
    db.execute(
        f"INSERT INTO main.{quoted(table.name)} ({into}) SELECT rowid, {', '.join(exprs)}"
        f" FROM src.{quoted(table.name)} WHERE {where} ORDER BY rowid"
    )


def _copy_backtraces(db: sqlite3.Connection, columns: tuple[str, ...]) -> None:
    """Copy the Python backtraces of CUDA calls: NVTX marks whose `jsonText` holds frames."""
    into = ", ".join(name for name in ("start", "globalTid", "domainId") if name in columns)
    db.execute(
        f"INSERT INTO main.NVTX_EVENTS (rowid, eventType, {into}, jsonText)"
        f" SELECT rowid, eventType, {into}, {_FRAMES_SQL} FROM src.NVTX_EVENTS"
        f" WHERE jsonText NOT NULL AND {_FRAMES_SQL} NOT NULL"
        " AND rowid NOT IN (SELECT rowid FROM main.NVTX_EVENTS) ORDER BY rowid"
    )


def _copy_strings(db: sqlite3.Connection, present: Mapping[str, tuple[str, ...]]) -> None:
    """Copy the strings that the copied rows name; source files without the folders above them."""
    db.execute("CREATE TEMP TABLE named (id INTEGER PRIMARY KEY)")
    db.execute("CREATE TEMP TABLE files (id INTEGER PRIMARY KEY)")
    for table, column in _string_ids(present):
        ids = f"SELECT {quoted(column)} FROM main.{quoted(table)} WHERE {quoted(column)} NOT NULL"
        db.execute(f"INSERT OR IGNORE INTO named {ids}")
    if "jsonText" in present.get("NVTX_EVENTS", ()):
        traces = "SELECT DISTINCT jsonText FROM main.NVTX_EVENTS WHERE jsonText NOT NULL"
        for (text,) in db.execute(traces).fetchall():
            frames = json.loads(text)[_BACKTRACE]["Frames"]
            db.executemany("INSERT OR IGNORE INTO files VALUES (:File)", frames)
            db.executemany("INSERT OR IGNORE INTO named VALUES (:Function)", frames)
    db.execute("CREATE TABLE main.StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
    db.execute(
        "INSERT INTO main.StringIds"
        " SELECT id, iif(id IN named, value, shortened(CAST(value AS BLOB)))"
        " FROM src.StringIds WHERE id IN named OR id IN files ORDER BY id"
    )


def _string_ids(present: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """The tables and columns that name a string by its id."""
    for table in TABLES.values():
        for column, dtype in table.columns.items():
            if dtype == pl.UInt32 and column != "id" and column in present.get(table.name, ()):
                yield table.name, column


def shortened(path: str) -> str:
    """A source path without the folders of the machine it was on.

    A library's keeps what tells it from the program's: `site-packages/…`, `lib/python3.12/…`.
    """
    library = _LIBRARY.search(path)
    return library[1] if library else re.split(r"[/\\]", path)[-1]


def _loss(text: str) -> str | None:
    """What the profiler said of lost events, without paths; None of any other message."""
    return _PATH.sub("(path)", text) if _LOSS.search(text) else None


def _frames(text: str) -> str | None:
    """A backtrace's frames and nothing else of its JSON; None of other JSON."""
    try:
        frames = json.loads(text)[_BACKTRACE]["Frames"]
        kept = [{key: int(frame[key]) for key in ("Function", "File", "Line")} for frame in frames]
    except (KeyError, TypeError, ValueError):
        return None
    return json.dumps({_BACKTRACE: {"Frames": kept}}, separators=(",", ":"))


def _on_text(function: Callable[[str], str | None]) -> Callable[[object], str | None]:
    """For SQL, which gives bytes that nobody checked."""

    def of_bytes(value: object) -> str | None:
        return function(value.decode("utf-8", "replace")) if isinstance(value, bytes) else None

    return of_bytes
