"""Read files of a folder export in a process that may end: this file, run as a program.

polars takes the lengths in damaged Parquet and Arrow files as they are, asks for exabytes of
memory, and aborts. Who started this process then knows from its output at which file.
"""

import json
import sys
from contextlib import suppress
from pathlib import Path

import polars as pl


def main() -> None:
    """Read the files that stdin lists as JSON, each with the names of our columns; say each."""
    for file, wanted in json.load(sys.stdin):
        sys.stdout.write(f"{file}\n")
        sys.stdout.flush()
        with suppress(BaseException):  # also where Rust panics; who reads it then meets the same
            read(Path(file), wanted)


def read(file: Path, wanted: list[str]) -> pl.DataFrame:
    """Those of the wanted columns that a file has."""
    if file.suffix == ".parquet":
        names = [name for name in pl.read_parquet_schema(file) if name in wanted]
        return pl.scan_parquet(file).select(names).collect()
    names = [name for name in pl.read_ipc_stream(file, n_rows=0).columns if name in wanted]
    return pl.read_ipc_stream(file, columns=names)


if __name__ == "__main__":
    main()
