"""nsys's SQLite export as `Raw` frames, and how tables of any SQLite database are read. The
project's only SQL is here, in `pack` and in `allocator`.
"""

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from shlex import quote
from types import MappingProxyType
from typing import Final
from urllib.parse import quote as url_quote

import polars as pl
from adbc_driver_sqlite import dbapi

from nsysflow.analysis.frames.scratch import Scratch, in_files
from nsysflow.analysis.load.export_tables import (
    BESIDE_GRID,
    GRID,
    SAMPLED,
    TABLES,
    Raw,
    Shapes,
    Table,
    Unfit,
    assemble,
    unusable_tables,
)
from nsysflow.analysis.load.other_formats import not_an_export
from nsysflow.analysis.load.sampled import Where, read_sampled
from nsysflow.analysis.load.unpacking import export_of
from nsysflow.base.errors import Busy, Damaged, ReportError

_HEADER_BYTES: Final = 100
_HOT_JOURNAL: Final = bytes.fromhex("d9d505f920a163d7")


def sqlite_uri(path: Path, shown: str) -> str:
    """A URI that opens `path` read-only and leaves nothing beside it.

    Raises:
        Damaged: the file is shorter than its header says.
        Busy: another program is writing it.
    """
    real = path.resolve()  # SQLite names a journal after the file, not after a link to it
    with real.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    write_ahead = header[18:20] == b"\x02\x02"
    _check_journals(real, shown)
    _check_size(header, real.stat().st_size, shown)
    # mode=ro alone leaves -wal and -shm files beside a write-ahead database.
    mode = "?mode=ro&immutable=1" if write_ahead else "?mode=ro"
    return "file://" + url_quote(os.fsencode(real)) + mode


def _check_journals(path: Path, shown: str) -> None:
    """Refuse a file whose latest changes are still in a file beside it."""
    wal = path.with_name(path.name + "-wal")
    journal = path.with_name(path.name + "-journal")
    if wal.is_file() and wal.stat().st_size:
        file = wal.name
    elif journal.is_file() and _starts_with(journal, _HOT_JOURNAL):
        file = journal.name
    else:
        return
    raise Busy(
        f"{shown} is being written, or its writer was stopped: {file} beside it is not empty",
        "Wait for the writer to finish. If it is gone, let SQLite finish its work",
        f"sqlite3 {quote(shown)} 'PRAGMA journal_mode=DELETE'",
    )


def _starts_with(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def _check_size(header: bytes, size: int, shown: str) -> None:
    if len(header) < _HEADER_BYTES:
        raise Damaged(
            f"{shown} is truncated: it has {size} bytes, less than a header", *export_of(shown)
        )
    page = int.from_bytes(header[16:18], "big")
    page = 65536 if page == 1 else page
    pages = int.from_bytes(header[28:32], "big")
    trusted = header[24:28] == header[92:96]  # else an old SQLite wrote last, without a count
    expected = page * pages if trusted and pages else -(-size // page if page else 0) * page
    if size < expected:
        raise Damaged(f"{shown} is truncated: it has {size} of {expected} bytes", *export_of(shown))


_SIGNS_OF_DAMAGE: Final = ("malformed", "not a database", "unsupported file format", "decode")


class RowsLost(Exception):
    """SQLite ended a table before its last row, without an error."""


@contextmanager
def as_report_errors(shown: str) -> Iterator[None]:
    """Turn errors of reading the export that messages call `shown` into a `ReportError`."""
    try:
        yield
    except (Unfit, RowsLost) as error:
        raise _corrupt(shown, str(error)) from None
    except (sqlite3.Error, dbapi.Error, pl.exceptions.ComputeError) as error:
        raise _report_error(shown, str(error)) from error
    except UnicodeDecodeError as error:
        # SQLite quotes a corrupt schema in its message, which Python cannot decode.
        raise _corrupt(shown, "its schema is not text") from error


def _report_error(shown: str, said: str) -> ReportError:
    if "locked" in said or "busy" in said:
        return Busy(
            f"{shown} is locked: another program is writing it",
            "Wait for it to finish, or analyse a copy",
            f"cp {quote(shown)} copy.sqlite",
        )
    if any(sign in said for sign in _SIGNS_OF_DAMAGE):
        return _corrupt(shown, f"SQLite says: {said}")
    return ReportError(f"{shown} cannot be read; SQLite says: {said}", *export_of(shown))


def _corrupt(shown: str, why: str) -> Damaged:
    return Damaged(f"{shown} is corrupt: {why}", *export_of(shown))


PIECE_ROWS: Final = 131_072
_MOST_PIECES: Final = 512
_BATCH_ROWS: Final = "65536"
"""Reads twice as fast as with the driver's default of 1024 (docs/facts.md)."""

_SMALL_BYTES: Final = 4 << 20
"""A report of this size has 12,000 kernels, and one thread reads it in 40 ms."""

_TEXT: Final = (pl.String, pl.Categorical)
_ALL: Final[Where] = MappingProxyType({})

_LOCK_WAIT_S: Final = 0.2


def read_sqlite(
    path: Path, shown: str, *, shapes: Shapes = True, scratch: Scratch | None = None
) -> Raw:
    """The tables of the export at `path`, which messages call `shown`.

    Args:
        path: the SQLite file.
        shown: its name in messages.
        shapes: also read how kernels were launched, or only their grid; null without.
        scratch: where large frames are kept; None for memory.

    Raises:
        NotAReport: it is a database of something else.
        Damaged: it is truncated, corrupt or holds text where numbers belong.
        Busy: another program is writing it.
        Incomplete: it lacks a table or column without which idle time would be wrong.
    """
    uri = sqlite_uri(path, shown)
    with as_report_errors(shown):
        present, extents = describe(uri)
        _check_is_export(shown, present)
        unread = unusable_tables(shown, present, export_of(shown))
        unwanted = {True: (), "grid": BESIDE_GRID, False: (*GRID, *BESIDE_GRID)}[shapes]
        wanted = {
            table: tuple(name for name in columns if name not in unwanted)
            for table, columns in present.items()
            if table not in unread
        }
        with reading(uri, path, wanted, extents, scratch) as reader:
            frames = reader.all_of(TABLES)
            sampled = read_sampled(frames, reader.read)
        unread |= reader.unread
        read = {field: table for field, table in TABLES.items() if table.name not in unread}
        check_none_is_lost(uri, read, frames, extents)
    return assemble(shown, present, unread, frames | sampled)


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Reads tables of one database, in pieces and several at a time.

    Attributes:
        columns: those to read of each table, as far as the database has them.
        extents: the first and last rowid of each table that has rows.
        idle: connections that no thread uses now.
        pool: the threads that read.
        scratch: where large frames are kept; None for memory.
        lenient: whether what is no whole number, where these belong, is read as null.
        unread: what of each table was left out, by its name.
    """

    columns: Mapping[str, tuple[str, ...]]
    extents: Mapping[str, tuple[int, int]]
    idle: "_Idle"
    pool: ThreadPoolExecutor
    scratch: Scratch | None
    lenient: bool = False
    unread: dict[str, str] = field(default_factory=dict)

    def all_of(self, tables: Mapping[str, Table]) -> dict[str, pl.DataFrame]:
        """Each table as a frame, by the names that `tables` gives them."""
        pieces = {field: self._pieces(table, _ALL) for field, table in tables.items()}
        return {
            field: self._frame(table, _ALL, pieces.pop(field)) for field, table in tables.items()
        }

    def read(self, table: Table, where: Where) -> pl.DataFrame:
        """The rows of a table whose columns have one of the given values."""
        return self._frame(table, where, self._pieces(table, where))

    def _frame(
        self, table: Table, where: Where, pieces: list[Future[pl.DataFrame]]
    ) -> pl.DataFrame:
        """A table; without rows if it is a detail that holds what does not belong there."""
        try:
            return _joined(table, pieces, self.scratch)
        except Unfit as error:
            if self.lenient:
                return self._whole_numbers(table, where)
            if not table.detail:
                raise
            self.unread[table.name] = str(error)
            return table.columns.to_frame()

    def _whole_numbers(self, table: Table, where: Where) -> pl.DataFrame:
        """A table with null for what is no whole number where these belong."""
        integers = {name for name, dtype in table.columns.items() if dtype.is_integer()}
        odd = " OR ".join(
            f"({quoted(name)} IS NOT NULL AND {_whole(name)} IS NULL)"
            for name in integers.intersection(self.columns[table.name])
        )
        query = f"SELECT count(*) AS rows FROM {quoted(table.name)} WHERE {odd}"
        counted = Table(name=table.name, columns=pl.Schema({"rows": pl.Int64()}), required=())
        (count,) = _piece(self.idle, query, counted, None)["rows"]
        self.unread[table.name] = f"values of {table.name} that are no numbers, in {count} rows"
        return _joined(table, self._pieces(table, where, _whole), self.scratch)

    def _pieces(
        self, table: Table, where: Where, integer: Callable[[str], str] = quoted
    ) -> list[Future[pl.DataFrame]]:
        columns, extent = self.columns.get(table.name, ()), self.extents.get(table.name)
        queries = _queries(table, columns, extent, where, integer) if columns else ()
        return [
            self.pool.submit(_piece, self.idle, query, table, self.scratch) for query in queries
        ]


@contextmanager
def reading(
    uri: str,
    path: Path,
    columns: Mapping[str, tuple[str, ...]],
    extents: Mapping[str, tuple[int, int]],
    scratch: Scratch | None,
    *,
    lenient: bool = False,
) -> Iterator[Reader]:
    """What reads the tables of the database at `path`; see `Reader`."""
    threads = _threads(path)
    with _connections(uri, threads) as idle, ThreadPoolExecutor(threads) as pool:
        yield Reader(
            columns=columns,
            extents=extents,
            idle=idle,
            pool=pool,
            scratch=scratch,
            lenient=lenient,
        )


_Idle = SimpleQueue[dbapi.Connection]
"""Connections that no thread uses now."""


@contextmanager
def _connections(uri: str, count: int) -> Iterator[_Idle]:
    """So many connections. To open one for each query took as long as small tables themselves."""
    with ExitStack() as opened:
        idle = _Idle()
        for _ in range(count):
            idle.put(opened.enter_context(dbapi.connect(uri)))
        yield idle


def _threads(path: Path) -> int:
    """How many threads read: as many as this process may use cores, or one for a small report."""
    if path.stat().st_size <= _SMALL_BYTES:
        return 1
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_OF_NSYS: Final = frozenset(table.name for table in (*TABLES.values(), *SAMPLED.values()))


def describe(
    uri: str, is_read: Callable[[str], bool] = _OF_NSYS.__contains__
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[int, int]]]:
    """The columns of every table, and the first and last rowid of each table that is read.

    This uses Python's own SQLite, because that also sees a lock of this process.
    """
    with closing(sqlite3.connect(uri, uri=True, timeout=_LOCK_WAIT_S)) as db:
        try:
            found = db.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall()
        except MemoryError:  # some kB at most: a damaged page names more bytes than there are
            raise Unfit("its schema would not fit into memory") from None
        names = [name for (name,) in found if isinstance(name, str)]  # a damaged one is bytes
        columns = {
            name: tuple(row[1] for row in db.execute(f"PRAGMA table_info({quoted(name)})"))
            for name in names
        }
        extents = {}
        for name in filter(is_read, names):
            source = f"FROM {quoted(name)}"
            # one query for both would scan the table; each alone is one look-up in the tree
            query = f"SELECT (SELECT min(rowid) {source}), (SELECT max(rowid) {source})"
            first, last = db.execute(query).fetchone()
            if first is not None:
                extents[name] = (first, last)
    return columns, extents


def _check_is_export(shown: str, present: Mapping[str, tuple[str, ...]]) -> None:
    ours = {table.name for table in TABLES.values()}
    if not ours.intersection(present):
        raise not_an_export(present, shown)


def _queries(
    table: Table,
    present: tuple[str, ...],
    extent: tuple[int, int] | None,
    where: Where,
    integer: Callable[[str], str],
) -> Iterator[str]:
    """The queries that read a table in pieces by rowid, in order; none for an empty table.
    `integer` spells its columns of whole numbers.

    The first piece has no lower bound and the last no upper one: in a damaged file the first and
    last rowids may be wrong.
    """
    if extent is None:
        return
    columns = [
        _text(name)
        if dtype in _TEXT
        else _real(name)
        if dtype == pl.Float64
        else f"{integer(name)} AS {quoted(name)}"
        for name, dtype in table.columns.items()
        if name in present
    ]
    select = f"SELECT {', '.join(columns)} FROM {quoted(table.name)}"
    first, last = extent
    step = max(PIECE_ROWS, -(-(last - first + 1) // _MOST_PIECES))
    only = [_one_of(name, values) for name, values in where.items() if name in present]
    for start in range(first, last + 1, step):
        end = start + step - 1
        above = [f"rowid >= {start}"] if start > first else []
        below = [f"rowid <= {end}"] if end < last else []
        yield f"{select} WHERE {' AND '.join([*above, *below, *only, '1'])}"


def _one_of(name: str, values: Sequence[int]) -> str:
    """Whether a column has one of these values; a range is not written out."""
    if isinstance(values, range):
        return f"{quoted(name)} BETWEEN {values.start} AND {values.stop - 1}"
    return f"{quoted(name)} IN ({', '.join(map(str, values))})"


def _text(name: str) -> str:
    """A text column as bytes, '' for NULL.

    The driver takes a column's type from the first batch, and a batch of NULLs counts as numbers.
    Bytes, because the text need not be UTF-8.
    """
    return f"COALESCE(CAST({quoted(name)} AS BLOB), x'') AS {quoted(name)}"


def _real(name: str) -> str:
    """A column of numbers as floats, whatever the first batch contains.

    Text stays text and is refused later.
    """
    number = f"typeof({quoted(name)}) IN ('integer', 'real')"
    return (
        f"CASE WHEN {number} THEN CAST({quoted(name)} AS REAL) ELSE {quoted(name)} END"
        f" AS {quoted(name)}"
    )


def _whole(name: str) -> str:
    """A column of whole numbers, null where it holds anything else."""
    column = quoted(name)
    whole = f"CAST({column} AS INTEGER)"
    return (
        f"CASE WHEN typeof({column}) IN ('integer', 'real') AND {whole} = {column} THEN {whole} END"
    )


def _piece(idle: _Idle, query: str, table: Table, scratch: Scratch | None) -> pl.DataFrame:
    db = idle.get()
    try:
        return in_files(_read(db, query, table), scratch)
    finally:
        idle.put(db)


def _read(db: dbapi.Connection, query: str, table: Table) -> pl.DataFrame:
    with db.cursor() as cursor:
        cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": _BATCH_ROWS})
        cursor.execute(query)
        try:
            rows = pl.DataFrame(cursor.fetch_arrow())
        except (dbapi.Error, pl.exceptions.ComputeError) as error:
            if "mismatch" not in str(error):
                raise
            msg = f"{table.name} holds text where numbers belong"
            raise Unfit(msg) from error
    for name, dtype in rows.schema.items():
        wanted = table.columns[name]
        if dtype not in (pl.Int64, pl.Null, wanted) and wanted not in _TEXT:
            msg = f"{table.name}.{name} holds text where numbers belong"
            raise Unfit(msg)
    try:
        return rows.select(_typed(rows, table)).rechunk()
    except pl.exceptions.InvalidOperationError as error:
        msg = f"{table.name} holds numbers that are too large"
        raise Unfit(msg) from error


def check_none_is_lost(
    uri: str,
    tables: Mapping[str, Table],
    frames: Mapping[str, pl.DataFrame],
    extents: Mapping[str, tuple[int, int]],
) -> None:
    """Count the rows of each table whose rowids have gaps, since profilers leave no gaps.

    In an overwritten page, SQLite may treat a wrong rowid as the end of the requested range, and
    stop without an error. Counting ignores rowids, so it finds more rows, or the damage.

    Raises:
        RowsLost: fewer rows were read than there are.
    """
    for name, table in tables.items():
        first, last = extents.get(table.name, (0, -1))
        read = frames[name].height
        if read == last - first + 1:
            continue
        with closing(sqlite3.connect(uri, uri=True, timeout=_LOCK_WAIT_S)) as db:
            (count,) = db.execute(f"SELECT count(*) FROM {quoted(table.name)}").fetchone()
        if count != read:
            raise RowsLost(f"only {read} of {count} rows of {table.name} can be read")


def _typed(rows: pl.DataFrame, table: Table) -> Iterator[pl.Expr | pl.Series]:
    for name, dtype in table.columns.items():
        if name not in rows.columns:
            yield pl.lit(None, dtype).alias(name)
        elif dtype in _TEXT:
            yield _decoded(rows[name]).cast(dtype)
        else:
            yield pl.col(name).cast(dtype)


def _decoded(value: pl.Series) -> pl.Series:
    """Bytes as text, null where empty; bytes that are not UTF-8 become replacement marks."""
    try:
        text = value.cast(pl.String)
    except pl.exceptions.ComputeError:
        replaced = [raw.decode("utf-8", "replace") for raw in value]
        text = pl.Series(value.name, replaced, pl.String)
    return text.set(text == "", None)


def _joined(
    table: Table, pieces: list[Future[pl.DataFrame]], scratch: Scratch | None
) -> pl.DataFrame:
    """A table's pieces as one frame. The caller drops the pieces, so that only one table is in
    memory twice."""
    parts = [piece.result() for piece in pieces] or [table.columns.to_frame()]
    if scratch is not None:
        return scratch.joined(parts)
    return parts[0] if len(parts) == 1 else pl.concat(parts, rechunk=True)
