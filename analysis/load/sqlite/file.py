"""Checks that an SQLite file is whole and that no program is writing it, without SQLite's help.

SQLite opens a truncated file without an error, and so does `quick_check`, which takes 0.4 s for
180 MB. So the page count in the header is compared with the size of the file.
"""

import os
from pathlib import Path
from shlex import quote
from typing import Final
from urllib.parse import quote as url_quote

from nsysflow.analysis.load.nsys_rep import export_of
from nsysflow.base.errors import Busy, Damaged

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
    # mode=ro alone leaves -wal and -shm files beside a write-ahead database.
    mode = "?mode=ro&immutable=1" if write_ahead else "?mode=ro"
    return "file://" + url_quote(os.fsencode(real)) + mode


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
    raise Busy(
        f"{shown} is being written, or its writer was stopped: {beside} beside it is not empty",
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
