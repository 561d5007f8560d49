"""nsys's SQLite export as `Raw` frames. With `slim`, which writes, the only SQL of the project.

The big tables are read in pieces by rowid, on as many threads as there are cores, and each piece
is narrowed as it arrives. 1.0 M kernels and 2.4 M API calls take 1.4 s of CPU, over the cores; of
that 1.1 s are SQLite and its driver.
"""

import os
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

import polars as pl
from adbc_driver_sqlite import dbapi

from nsysflow.analysis.load.raw import (
    EXPORT_AGAIN,
    SAMPLED,
    SHAPE_COLUMNS,
    TABLES,
    Raw,
    Table,
    assemble,
    check_tables,
)
from nsysflow.analysis.load.sampled import Where, read_sampled
from nsysflow.analysis.load.sqlite_file import sqlite_uri
from nsysflow.errors import Busy, Damaged, NotAReport, ReportError

_PIECE_ROWS: Final = 131_072
_MOST_PIECES: Final = 512
_BATCH_ROWS: Final = "65536"
"""Twice as fast as the driver's default of 1024 (docs/facts.md)."""

_TEXT: Final = (pl.String, pl.Categorical)
_ALL: Final[Where] = MappingProxyType({})

_LOCK_WAIT_S: Final = 0.2
_SIGNS_OF_DAMAGE: Final = ("malformed", "not a database", "unsupported file format", "decode")


def read_sqlite(path: Path, shown: str, *, shapes: bool = True) -> Raw:
    """The tables of the export at `path`, which messages call `shown`.

    Without `shapes`, how kernels were launched is null.

    Raises:
        NotAReport: it is a database of something else.
        Damaged: it is truncated, corrupt or holds text where numbers belong.
        Busy: another program is writing it.
        Incomplete: it lacks a table or column that every export has.
    """
    uri = sqlite_uri(path, shown)
    with as_report_errors(shown):
        present, extents = describe(uri)
        _check_is_export(shown, present)
        check_tables(shown, present)
        unwanted = () if shapes else SHAPE_COLUMNS
        wanted = {
            table: tuple(name for name in columns if name not in unwanted)
            for table, columns in present.items()
        }
        with ThreadPoolExecutor(_cores()) as pool:

            def pieces_of(table: Table, where: Where = _ALL) -> list[Future[pl.DataFrame]]:
                columns, extent = wanted.get(table.name, ()), extents.get(table.name)
                queries = _queries(table, columns, extent, where)
                return [pool.submit(_read, uri, query, table) for query in queries]

            pieces = {field: pieces_of(table) for field, table in TABLES.items()}
            frames = {field: _joined(table, pieces.pop(field)) for field, table in TABLES.items()}
            sampled = read_sampled(
                frames, lambda table, where: _joined(table, pieces_of(table, where))
            )
        _check_none_is_lost(uri, frames, extents)
    return assemble(shown, present, frames | sampled)


def _cores() -> int:
    """The cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe(uri: str) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[int, int]]]:
    """The columns of every table, and the first and last rowid of those that we read.

    By Python's own SQLite, which also sees a lock held by this very process.
    """
    with closing(sqlite3.connect(uri, uri=True, timeout=_LOCK_WAIT_S)) as db:
        names = [
            name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        columns = {
            name: tuple(row[1] for row in db.execute(f"PRAGMA table_info({quoted(name)})"))
            for name in names
        }
        extents = {}
        for table in (*TABLES.values(), *SAMPLED.values()):
            if table.name in columns:
                source = f"FROM {quoted(table.name)}"
                # One query for both would scan the table; each alone is one look into the tree.
                query = f"SELECT (SELECT min(rowid) {source}), (SELECT max(rowid) {source})"
                first, last = db.execute(query).fetchone()
                if first is not None:
                    extents[table.name] = (first, last)
    return columns, extents


def _check_is_export(shown: str, present: Mapping[str, tuple[str, ...]]) -> None:
    ours = {table.name for table in TABLES.values()}
    if not ours.intersection(present):
        msg = (
            f"{shown} is an SQLite database, but not an Nsight Systems export: it has none of its"
            " tables. Export a report:\n  nsys export --type sqlite REPORT.nsys-rep"
        )
        raise NotAReport(msg)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _queries(
    table: Table,
    present: tuple[str, ...],
    extent: tuple[int, int] | None,
    where: Where,
) -> Iterator[str]:
    """The queries that read a table in pieces, in rowid order; none for an empty table."""
    if extent is None:
        return
    columns = [
        _text(name) if dtype in _TEXT else _real(name) if dtype == pl.Float64 else quoted(name)
        for name, dtype in table.columns.items()
        if name in present
    ]
    select = f"SELECT {', '.join(columns)} FROM {quoted(table.name)}"
    first, last = extent
    step = max(_PIECE_ROWS, -(-(last - first + 1) // _MOST_PIECES))
    only = "".join(
        f" AND {quoted(name)} IN ({', '.join(map(str, values))})" for name, values in where.items()
    )
    for start in range(first, last + 1, step):
        yield f"{select} WHERE rowid BETWEEN {start} AND {min(start + step - 1, last)}{only}"


def _text(name: str) -> str:
    """A text column as bytes, '' for NULL.

    The driver takes types from the first batch, so a batch of NULLs would turn text into numbers;
    and bytes because nobody checked that the text is UTF-8.
    """
    return f"COALESCE(CAST({quoted(name)} AS BLOB), x'') AS {quoted(name)}"


def _real(name: str) -> str:
    """A column of numbers as floats, since the driver takes its type from the first batch; text
    stays text, to be refused."""
    number = f"typeof({quoted(name)}) IN ('integer', 'real')"
    return (
        f"CASE WHEN {number} THEN CAST({quoted(name)} AS REAL) ELSE {quoted(name)} END"
        f" AS {quoted(name)}"
    )


def _read(uri: str, query: str, table: Table) -> pl.DataFrame:
    with dbapi.connect(uri) as db, db.cursor() as cursor:
        cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": _BATCH_ROWS})
        cursor.execute(query)
        rows = pl.DataFrame(cursor.fetch_arrow())
    for name, dtype in rows.schema.items():
        wanted = table.columns[name]
        if dtype not in (pl.Int64, pl.Null, wanted) and wanted not in _TEXT:
            raise _NotANumber(f"{table.name}.{name}")
    return rows.select(_typed(rows, table)).rechunk()


class _NotANumber(Exception):
    """A column of numbers holds something else."""


class _RowsLost(Exception):
    """SQLite ended a table before its end, without a word."""


def _check_none_is_lost(
    uri: str, frames: Mapping[str, pl.DataFrame], extents: Mapping[str, tuple[int, int]]
) -> None:
    """Count the rows of tables that were read with gaps in their rowids, which nsys leaves none of.

    Where a page was overwritten SQLite may take a wild rowid for the end of what was asked for.
    Counting looks at no rowid, so it comes to another number, or finds the damage.

    Raises:
        _RowsLost: fewer rows were read than there are.
    """
    for field, table in TABLES.items():
        first, last = extents.get(table.name, (0, -1))
        read = frames[field].height
        if read == last - first + 1:
            continue
        with closing(sqlite3.connect(uri, uri=True, timeout=_LOCK_WAIT_S)) as db:
            (count,) = db.execute(f"SELECT count(*) FROM {quoted(table.name)}").fetchone()
        if count != read:
            raise _RowsLost(f"{table.name} holds {count} rows, and {read} can be read")


def _typed(rows: pl.DataFrame, table: Table) -> Iterator[pl.Expr | pl.Series]:
    for name, dtype in table.columns.items():
        if name not in rows.columns:
            yield pl.lit(None, dtype).alias(name)
        elif dtype in _TEXT:
            yield _decoded(rows[name]).cast(dtype)
        else:
            yield pl.col(name).cast(dtype)


def _decoded(value: pl.Series) -> pl.Series:
    """Bytes as text, null where empty; bytes that are no UTF-8 become replacement marks."""
    try:
        text = value.cast(pl.String)
    except pl.exceptions.ComputeError:
        replaced = [raw.decode("utf-8", "replace") for raw in value]
        text = pl.Series(value.name, replaced, pl.String)
    return text.set(text == "", None)


def _joined(table: Table, pieces: list[Future[pl.DataFrame]]) -> pl.DataFrame:
    """A table's pieces as one frame. The caller lets go of them, so that memory holds two copies
    of one table only."""
    parts = [table.columns.to_frame(), *(piece.result() for piece in pieces)]
    return pl.concat(parts, rechunk=True)


@contextmanager
def as_report_errors(shown: str) -> Iterator[None]:
    """Turn what SQLite and its driver say of a bad file into errors someone can act on."""
    try:
        yield
    except _NotANumber as error:
        msg = f"{shown} holds text where numbers belong, in {error}: it is corrupt. {EXPORT_AGAIN}"
        raise Damaged(msg) from None
    except _RowsLost as error:
        raise Damaged(f"{shown} is corrupt: {error}. {EXPORT_AGAIN}") from None
    except (sqlite3.Error, dbapi.Error, pl.exceptions.ComputeError) as error:
        raise _report_error(shown, str(error)) from error
    except UnicodeDecodeError as error:
        # Python cannot say what SQLite said: the message quotes a corrupt schema.
        raise Damaged(f"{shown} is corrupt (its schema is no text). {EXPORT_AGAIN}") from error
    except pl.exceptions.InvalidOperationError as error:
        msg = f"{shown} holds numbers that are too large: it is corrupt. {EXPORT_AGAIN}"
        raise Damaged(msg) from error


def _report_error(shown: str, said: str) -> ReportError:
    if "locked" in said or "busy" in said:
        msg = (
            f"{shown} is locked: another program is writing it. Wait for it to finish, or analyse"
            f" a copy:\n  cp {shown} copy.sqlite"
        )
        return Busy(msg)
    if "mismatch" in said:
        msg = f"{shown} holds text where numbers belong: it is corrupt. {EXPORT_AGAIN}"
        return Damaged(msg)
    if any(sign in said for sign in _SIGNS_OF_DAMAGE):
        return Damaged(f"{shown} is corrupt (SQLite: {said}). {EXPORT_AGAIN}")
    return ReportError(f"{shown} cannot be read (SQLite: {said}). {EXPORT_AGAIN}")
