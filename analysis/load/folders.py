"""nsys's exports that are a folder with a file per table, as `Raw` frames: `parquetdir` and
`arrowdir`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import polars as pl

from nsysflow.analysis.load import folder_files
from nsysflow.analysis.load.export_tables import (
    SAMPLED,
    TABLES,
    Raw,
    Table,
    Unfit,
    assemble,
    unusable_tables,
)
from nsysflow.analysis.load.folder_files import ARROW, PARQUET, columns_of, rows_of
from nsysflow.analysis.load.sampled import Where, read_sampled
from nsysflow.analysis.load.unpacking import export_of
from nsysflow.base.errors import Damaged, Remedy

UNREADABLE: Final = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
"""What polars raises for a damaged file: where its reader of parquet panics, too."""


@dataclass(frozen=True)
class FolderExport:
    """A kind of export that is a folder.

    Attributes:
        kind: as `nsys export --type` calls it.
        ending: of the files.
    """

    kind: str
    ending: str


EXPORTS: Final = (FolderExport("parquetdir", PARQUET), FolderExport("arrowdir", ARROW))
"""The first that a folder holds a table of is read."""

_OUT_OF_MEMORY: Final = -9
"""How a process ends where the machine has too little memory."""


def folder_export(folder: Path) -> FolderExport | None:
    """The kind of export in a folder; None if it holds none of nsys's tables."""
    for export in EXPORTS:
        if any((folder / f"{table.name}{export.ending}").is_file() for table in TABLES.values()):
            return export
    return None


def table_files(folder: Path) -> list[Path]:
    """The files of the export in a folder, sorted; none if it holds no export."""
    export = folder_export(folder)
    return [] if export is None else sorted(folder.glob(f"*{export.ending}"))


def read_folder(folder: Path, export: FolderExport, shown: str) -> Raw:
    """The tables of the export in `folder`, which messages call `shown`.

    Raises:
        Damaged: a file is truncated or corrupt, or one of these tables holds what it should not.
        Incomplete: it lacks a table or column without which idle time would be wrong.
    """
    again = export_of(shown, kind=export.kind)
    _try(folder, export, shown)
    present = {file.stem: _columns(file, export, shown) for file in table_files(folder)}
    unread = unusable_tables(shown, present, again)

    def read(table: Table, where: Where = MappingProxyType({})) -> pl.DataFrame:
        if table.name not in present or table.name in unread:
            return table.columns.to_frame()
        names = [name for name in present[table.name] if name in table.columns]
        file = folder / f"{table.name}{export.ending}"
        wanted = [pl.col(name).is_in(values) for name, values in where.items() if name in names]
        try:
            rows = rows_of(file, names).filter(*wanted).collect()
            return _fit(rows, table)
        except Unfit as error:
            if not table.detail:
                raise Damaged(f"{shown} is corrupt: {error}", *again) from error
            unread[table.name] = str(error)
            return table.columns.to_frame()
        except UNREADABLE as error:
            raise _damaged(file, shown, error, again) from error

    frames = {field: read(table) for field, table in TABLES.items()}
    return assemble(shown, present, unread, frames | read_sampled(frames, read))


def _try(folder: Path, export: FolderExport, shown: str) -> None:
    """Read our columns of the files in another process, to see whether it survives.

    Raises:
        Damaged: a file ended it.
    """
    wanted: dict[str, list[str]] = {file.stem: [] for file in table_files(folder)}
    for table in (*TABLES.values(), *SAMPLED.values()):
        wanted.get(table.name, []).extend(table.columns)
    files = [(str(folder / f"{name}{export.ending}"), names) for name, names in wanted.items()]
    trial = subprocess.run(
        [sys.executable, "-P", folder_files.__file__],
        input=json.dumps(files),
        capture_output=True,
        text=True,
        check=False,
    )
    if trial.returncode not in (0, _OUT_OF_MEMORY) and trial.stdout:
        said = (line for line in trial.stderr.splitlines() if "memory allocation" in line)
        why = next(said, f"a process that read it ended with {trial.returncode}")
        file = Path(trial.stdout.splitlines()[-1])
        raise _damaged(file, shown, why, export_of(shown, kind=export.kind))


def _columns(file: Path, export: FolderExport, shown: str) -> tuple[str, ...]:
    try:
        return tuple(columns_of(file))
    except UNREADABLE as error:
        raise _damaged(file, shown, error, export_of(shown, kind=export.kind)) from error


def _fit(rows: pl.DataFrame, table: Table) -> pl.DataFrame:
    try:
        return rows.select(_typed(rows, table))
    except pl.exceptions.InvalidOperationError as error:
        msg = f"{table.name} holds numbers that are too large"
        raise Unfit(msg) from error


def _typed(rows: pl.DataFrame, table: Table) -> Iterator[pl.Expr]:
    for name, dtype in table.columns.items():
        if name not in rows.columns or rows[name].null_count() == len(rows):  # then of any type
            yield pl.lit(None, dtype).alias(name)
            continue
        text = rows.schema[name] == pl.String
        if text != (dtype in (pl.String, pl.Categorical)):
            belong = "text where numbers" if text else "numbers where text"
            msg = f"{table.name}.{name} holds {belong} belong"
            raise Unfit(msg)
        if dtype.is_integer() and rows.schema[name].is_float() and (rows[name] % 1 != 0).any():
            msg = f"{table.name}.{name} holds fractions where whole numbers belong"
            raise Unfit(msg)
        # Keys of processes and threads are unsigned here and use all 64 bits; in SQLite they wrap.
        yield pl.col(name).cast(dtype, wrap_numerical=dtype == pl.Int64)


def _damaged(file: Path, shown: str, error: object, again: Remedy) -> Damaged:
    said = str(error).partition("\n")[0]
    return Damaged(f"{shown} is corrupt: {file.name} cannot be read ({said})", *again)
