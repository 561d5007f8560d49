"""Is this file a whole SQLite database that nobody is writing? Told without SQLite's help.

SQLite opens a truncated file without a word (`quick_check` passes too, and takes 0.4 s on 180 MB),
so the header's page count is held against the file's size.
"""

import os
from pathlib import Path
from typing import Final
from urllib.parse import quote

from nsysflow.analysis.load.raw import EXPORT_AGAIN
from nsysflow.errors import Busy, Damaged

MAGIC: Final = b"SQLite format 3\0"
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
    # A write-ahead database opened with mode=ro alone leaves -wal and -shm behind.
    mode = "?mode=ro&immutable=1" if write_ahead else "?mode=ro"
    return "file://" + quote(os.fsencode(real)) + mode


def _check_journals(path: Path, shown: str) -> None:
    """Refuse a file whose latest changes are still in a file beside it."""
    wal = path.with_name(path.name + "-wal")
    journal = path.with_name(path.name + "-journal")
    if wal.is_file() and wal.stat().st_size:
        beside = wal.name
    elif journal.is_file() and _starts_with(journal, _HOT_JOURNAL):
        beside = journal.name
    else:
        return
    msg = (
        f"{shown} is still being written, or its writer was stopped midway ({beside} lies beside"
        f" it and is not empty). Wait for the writer to finish, or let SQLite tidy up:\n"
        f"  sqlite3 {shown} 'PRAGMA journal_mode=DELETE'"
    )
    raise Busy(msg)


def _starts_with(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def _check_size(header: bytes, size: int, shown: str) -> None:
    if len(header) < _HEADER_BYTES:
        msg = f"{shown} is truncated: {size} bytes, less than a header. {EXPORT_AGAIN}"
        raise Damaged(msg)
    page = int.from_bytes(header[16:18], "big")
    page = 65536 if page == 1 else page
    pages = int.from_bytes(header[28:32], "big")
    trusted = header[24:28] == header[92:96]  # else an old SQLite wrote last, without a count
    expected = page * pages if trusted and pages else -(-size // page if page else 0) * page
    if size < expected:
        msg = f"{shown} is truncated: {size} of {expected} bytes. {EXPORT_AGAIN}"
        raise Damaged(msg)
