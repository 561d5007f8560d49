"""Reports that must be unpacked or exported before they can be read.

Compressed ones are unpacked into a private temporary file, and packed again. An `.nsys-rep` is
exported to SQLite by a given function, since reading starts no program.
"""

import errno
import re
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from gzip import BadGzipFile, GzipFile
from io import BufferedIOBase
from lzma import LZMAError, LZMAFile
from pathlib import Path
from shlex import quote
from typing import IO, Final

from nsysflow.base.atomic import scratch_folder
from nsysflow.base.errors import (
    Damaged,
    NsysMissing,
    OutputError,
    Remedy,
    ReportError,
    export_again,
)


@contextmanager
def temporary_folder(shown: str, done: str) -> Iterator[Path]:
    """A folder in which a report is worked on; it is removed afterwards.

    Args:
        shown: the report's name in messages.
        done: what is done with it, e.g. `unpacked`.

    Raises:
        OutputError: there is no place for it.
    """
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(scratch_folder())
        except OSError as error:
            raise no_temporary(shown, done, f"cannot be written ({error.strerror})") from error
        yield folder


def no_temporary(shown: str, done: str, why: str) -> OutputError:
    """The error where temporary files find no place."""
    return OutputError(
        f"{shown} cannot be {done}: the folder for temporary files {why}",
        "Name another with room",
        "export TMPDIR=FOLDER",
    )


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGICS: Final = {b"\xfd7zXZ\0": ".xz", b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}
"""The first bytes of each kind of compressed file."""

_Opened = Callable[[IO[bytes]], BufferedIOBase]

_READERS: Final[Mapping[str, _Opened]] = {
    ".xz": LZMAFile,
    ".gz": lambda packed: GzipFile(fileobj=packed),
    ".zst": zstd.ZstdFile,
}
_WRITERS: Final[Mapping[str, _Opened]] = {
    ".xz": partial(LZMAFile, mode="wb"),
    # without name and time: they would make each copy another file
    ".gz": lambda packed: GzipFile(filename="", mode="wb", fileobj=packed, mtime=0),
    ".zst": partial(zstd.ZstdFile, mode="wb"),
}

_UNPACK: Final = {".xz": "xz --decompress", ".gz": "gzip --decompress", ".zst": "zstd --decompress"}
_DAMAGE: Final = (EOFError, LZMAError, zlib.error, BadGzipFile, zstd.ZstdError)
_CHUNK: Final = 1 << 20

_MOST_RATIO: Final = 200
"""Real reports unpack to 4 to 24 times their size (all of tests/data and samples, 2026-11-27)."""

_ANY_RATIO_BYTES: Final = 1 << 28
"""What unpacks to no more than this may be of any ratio: a short report of one kernel is."""


@contextmanager
def unpacked(path: Path, suffix: str, shown: str) -> Iterator[Path]:
    """The content of a compressed file, in a temporary file.

    Raises:
        Damaged: the file is truncated or corrupt, or unpacks to far more than a report would.
        OutputError: there is no room for the content.
    """
    with temporary_folder(shown, "unpacked") as folder:
        out = folder / "report"
        try:
            with (
                path.open("rb") as packed,
                _READERS[suffix](packed) as source,
                out.open("wb") as plain,
            ):
                most = max(_MOST_RATIO * path.stat().st_size, _ANY_RATIO_BYTES)
                while (chunk := source.read(_CHUNK)) and plain.tell() <= most:
                    plain.write(chunk)
            if chunk:
                raise Damaged(
                    f"{shown} unpacks to more than {most:,} bytes, {_MOST_RATIO} times its size or"
                    " more: no report does, so it was not unpacked further",
                    "Ask where it is from. If it is a report, unpack it yourself, and analyse that",
                    f"{_UNPACK[suffix]} {quote(shown)}",
                )
        except _DAMAGE as error:
            raise Damaged(
                f"{shown} is truncated or corrupt ({error}); it has {path.stat().st_size} bytes",
                "Copy it again, and compare its checksum with the original's",
                f"sha256sum {quote(shown)}",
            ) from error
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise no_temporary(shown, "unpacked", "is full") from error
        yield out


def content_of(path: Path) -> bytes:
    """The content of a file, which may be compressed.

    Raises:
        Damaged: the file is truncated or corrupt.
        OutputError: there is no room for the content.
        OSError: it cannot be read.
    """
    content = path.read_bytes()
    for magic, suffix in MAGICS.items():
        if content.startswith(magic):
            with unpacked(path, suffix, str(path)) as plain:
                return plain.read_bytes()
    return content


def pack_into(plain: IO[bytes], packed: IO[bytes], suffix: str) -> None:
    """Write `plain`, compressed as `suffix` says, or as it is; the same bytes every time."""
    if suffix not in _WRITERS:
        shutil.copyfileobj(plain, packed, _CHUNK)
        return
    with _WRITERS[suffix](packed) as target:
        shutil.copyfileobj(plain, target, _CHUNK)


SQLITE_MAGIC: Final = b"SQLite format 3\0"
NSYS_SUFFIXES: Final = (".nsys-rep", ".qdrep")

Export = Callable[[Path, Path], None]
"""Exports a report (first path) to an SQLite file (second path)."""

_PACKED_NAME: Final = re.compile(r"(\.xz|\.gz|\.zst|/)$")
ROCPD_SUFFIX: Final = ".db"
"""What rocprofv3 calls its databases: `HOST/PID_results.db`."""

PERFETTO_SUFFIXES: Final = (".pftrace", ".perfetto-trace")
"""What traces in Perfetto's format are called."""

ROCPROF: Final = "rocprofv3 --runtime-trace --output-format rocpd -- COMMAND"
"""Records HIP's calls, markers, RCCL's calls, copies and kernels."""

_EXPORTED_NAME: Final = re.compile(r"(\.sqlite|_pqtdir)$")
"""What nsys appends to the name of a report that it exports."""


@contextmanager
def exported(path: Path, shown: str, export: Export | None) -> Iterator[Path]:
    """The report as an SQLite export in a temporary folder.

    Raises:
        ReportError: there is nothing to export it with.
        NsysflowError: whatever `export` raises.
    """
    if export is None:
        raise ReportError(
            f"{shown} is an Nsight Systems report, and this call was given nothing to export it"
            " with",
            "Export it first, and analyse the file that nsys writes",
            _by_hand(shown),
        )
    with temporary_folder(shown, "exported") as folder:
        out = folder / "report.sqlite"
        try:
            export(path, out)
        except NsysMissing as error:
            raise ReportError(
                f"{shown} must be exported first, and {error.seen}",
                f"{error.advice or 'Install nsys'}, or export the report where nsys is installed",
                "\n".join(filter(None, (error.command, _by_hand(shown)))),
            ) from error
        yield out


def export_of(shown: str, *, kind: str = "sqlite", json: bool = False) -> Remedy:
    """How to make the export called `shown` again, from the report beside it if it is there; or a
    database of rocprofv3, by its ending."""
    if _PACKED_NAME.sub("", shown).endswith(ROCPD_SUFFIX):
        return "Record the program again", ROCPROF
    if shown.endswith(NSYS_SUFFIXES):
        return export_again(shown, kind=kind, json=json)
    name = _PACKED_NAME.sub("", shown)
    report = Path(_EXPORTED_NAME.sub("", name) + NSYS_SUFFIXES[0])
    if report.is_file():
        return export_again(report, name, kind=kind, json=json)
    return export_again(kind=kind, json=json)


def _by_hand(shown: str) -> str:
    return f"nsys export --type sqlite {quote(shown)}"
