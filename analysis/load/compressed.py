"""Compressed reports: unpacked to a private temporary file, and packed again."""

import errno
import gzip
import lzma
import shutil
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final

from nsysflow.errors import Damaged, OutputError

if sys.version_info >= (3, 14):
    from compression import zstd

    _new_frame = zstd.ZstdDecompressor
    _new_packer = zstd.ZstdCompressor
else:
    import zstandard as zstd

    def _new_frame() -> "zstd.ZstdDecompressionObj":
        return zstd.ZstdDecompressor().decompressobj()

    def _new_packer() -> "zstd.ZstdCompressionObj":
        return zstd.ZstdCompressor().compressobj()


MAGICS: Final = {b"\xfd7zXZ\0": ".xz", b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}
"""How each kind of compressed file begins."""

_CHUNK: Final = 1 << 20


@contextmanager
def unpacked(path: Path, suffix: str, shown: str) -> Iterator[Path]:
    """The content of a compressed file in a file of its own, which is gone afterwards.

    Raises:
        Damaged: the file is truncated or corrupt.
        OutputError: there is no room for the content.
    """
    with TemporaryDirectory(prefix="nsysflow-") as folder:
        out = Path(folder) / "report"
        try:
            with path.open("rb") as packed, out.open("wb") as plain:
                _UNPACK[suffix](packed, plain)
        except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
            msg = (
                f"{shown} is truncated or corrupt ({error}), after {path.stat().st_size} bytes."
                f" Copy it again from where it came, and compare:\n  sha256sum {shown}"
            )
            raise Damaged(msg) from error
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            msg = (
                f"{shown} cannot be unpacked: no space is left for temporary files. Name a"
                " folder with room:\n  export TMPDIR=FOLDER"
            )
            raise OutputError(msg) from error
        yield out


def _unpack_xz(packed: IO[bytes], plain: IO[bytes]) -> None:
    with lzma.open(packed) as source:
        shutil.copyfileobj(source, plain, _CHUNK)


def _unpack_gz(packed: IO[bytes], plain: IO[bytes]) -> None:
    with gzip.open(packed) as source:
        shutil.copyfileobj(source, plain, _CHUNK)


def _unpack_zst(packed: IO[bytes], plain: IO[bytes]) -> None:
    frame = _new_frame()
    try:
        while chunk := packed.read(_CHUNK):
            while chunk:
                if frame.eof:
                    frame = _new_frame()
                plain.write(frame.decompress(chunk))
                chunk = frame.unused_data
    except zstd.ZstdError as error:
        raise EOFError(str(error)) from error
    if not frame.eof:
        msg = "its last frame has no end"
        raise EOFError(msg)


_UNPACK: Final = {".xz": _unpack_xz, ".gz": _unpack_gz, ".zst": _unpack_zst}


def pack_into(plain: IO[bytes], packed: IO[bytes], suffix: str) -> None:
    """Write `plain` compressed as `suffix` says, or as it is; the same bytes every time."""
    if suffix == ".xz":
        with lzma.open(packed, "wb") as target:
            shutil.copyfileobj(plain, target, _CHUNK)
    elif suffix == ".gz":
        with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as target:
            shutil.copyfileobj(plain, target, _CHUNK)
    elif suffix == ".zst":
        packer = _new_packer()
        while chunk := plain.read(_CHUNK):
            packed.write(packer.compress(chunk))
        packed.write(packer.flush())
    else:
        shutil.copyfileobj(plain, packed, _CHUNK)
