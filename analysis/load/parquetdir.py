"""nsys's `parquetdir` export, a folder with a Parquet file per table, as `Raw` frames."""

from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

import polars as pl

from nsysflow.analysis.load.export_tables import TABLES, Raw, Table, assemble, check_tables
from nsysflow.analysis.load.sampled import Where, read_sampled
from nsysflow.analysis.load.unpacking import export_of
from nsysflow.base.errors import Damaged, Remedy


def is_parquetdir(folder: Path) -> bool:
    """Whether a folder holds at least one of nsys's tables as a Parquet file."""
    return any((folder / f"{table.name}.parquet").is_file() for table in TABLES.values())


def read_parquetdir(folder: Path, shown: str) -> Raw:
    """The tables of the export in `folder`, which messages call `shown`.

    Raises:
        Damaged: a file is truncated, corrupt or holds text where numbers belong.
        Incomplete: the export lacks a table or column that every export has.
    """
    present = {file.stem: _columns(file, shown) for file in sorted(folder.glob("*.parquet"))}
    unknown = check_tables(shown, present, _again(shown))

    def read(table: Table, where: Where = MappingProxyType({})) -> pl.DataFrame:
        return _read(folder / f"{table.name}.parquet", table, shown, where)

    frames = {field: read(table) for field, table in TABLES.items()}
    return assemble(shown, present, unknown, frames | read_sampled(frames, read))


def _columns(file: Path, shown: str) -> tuple[str, ...]:
    try:
        return tuple(pl.read_parquet_schema(file))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _damaged(file, shown, error) from error


def _read(file: Path, table: Table, shown: str, where: Where) -> pl.DataFrame:
    if not file.is_file():
        return table.columns.to_frame()
    columns = [name for name in pl.read_parquet_schema(file) if name in table.columns]
    wanted = [pl.col(name).is_in(values) for name, values in where.items() if name in columns]
    try:
        rows = pl.scan_parquet(file).select(columns).filter(*wanted).collect()
        return rows.select(_typed(rows, table, shown))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _damaged(file, shown, error) from error


def _typed(rows: pl.DataFrame, table: Table, shown: str) -> Iterator[pl.Expr]:
    for name, dtype in table.columns.items():
        if name not in rows.columns or rows[name].null_count() == len(rows):  # then of any type
            yield pl.lit(None, dtype).alias(name)
            continue
        text = rows.schema[name] == pl.String
        if text != (dtype in (pl.String, pl.Categorical)):
            belong = "text where numbers" if text else "numbers where text"
            raise Damaged(
                f"{shown} is corrupt: {table.name}.{name} holds {belong} belong", *_again(shown)
            )
        # Keys of processes and threads are unsigned here and use all 64 bits; in SQLite they wrap.
        yield pl.col(name).cast(dtype, wrap_numerical=dtype == pl.Int64)


def _damaged(file: Path, shown: str, error: Exception) -> Damaged:
    said = str(error).partition("\n")[0]
    return Damaged(f"{shown} is corrupt: {file.name} cannot be read ({said})", *_again(shown))


def _again(shown: str) -> Remedy:
    return export_of(shown, kind="parquetdir")
