"""The files of an export that is a folder: Parquet, or Arrow streams. As a program: try them.

polars takes the lengths in damaged files as they are, asks for exabytes of memory, and aborts. So
another process reads the files first. What it said last is the file that ended it.
"""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import polars as pl

PARQUET: Final = ".parquet"
ARROW: Final = ".arrow"

_END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""The last bytes of an Arrow stream. One that is cut between two batches reads as a shorter one."""


def columns_of(file: Path) -> list[str]:
    """The names of the columns of a file.

    Raises:
        OSError: the end of an Arrow stream is missing.
    """
    if file.suffix == PARQUET:
        return [*pl.read_parquet_schema(file)]
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - len(_END_OF_STREAM)))
        if stream.read() != _END_OF_STREAM:
            raise OSError("its end is missing")
    return pl.read_ipc_stream(file, n_rows=0).columns


def rows_of(file: Path, names: list[str]) -> pl.LazyFrame:
    """These columns of a file."""
    if file.suffix == PARQUET:
        return pl.scan_parquet(file).select(names)
    return pl.read_ipc_stream(file, columns=names).lazy()


def main() -> None:
    """Say and read each file that stdin lists as JSON, with the names of the wanted columns."""
    for listed, wanted in json.load(sys.stdin):
        sys.stdout.write(f"{listed}\n")
        sys.stdout.flush()
        file = Path(listed)
        with suppress(BaseException):  # also where Rust panics; the next reader meets the same
            rows_of(file, [name for name in columns_of(file) if name in wanted]).collect()


if __name__ == "__main__":
    main()
