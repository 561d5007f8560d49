"""The tables as files: CSV for people and diff, Parquet for programs, and report.json."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Final, Literal

import polars as pl
from polars.io.plugins import register_io_source

from nsysflow.analysis.tables.gaps import SLICE_ROWS
from nsysflow.analysis.tables.index import declaration, declarations
from nsysflow.base.names import CONTROLS, CSV_FORMULA
from nsysflow.compare.document import FILE
from nsysflow.report.document import plain
from nsysflow.report.document import report_json as report_json
from nsysflow.report.results import Results

WHERE_THERE: Final = tuple(table.name for table in declarations() if table.csv == "with rows")
"""The tables that become a CSV file only where they have rows."""

GapsFormat = Literal["auto", "csv", "parquet"]
"""How the file of all gaps is written; `auto` takes Parquet where CSV would be large."""

GAPS_CSV: Final = "gaps.csv"
GAPS_PARQUET: Final = "gaps.parquet"
LARGEST_GAPS_CSV_BYTES: Final = 50_000_000
"""Larger ones open slowly in an editor or a spreadsheet."""


def named_table(results: Results, name: str, *, at_least_ns: int = 0) -> pl.DataFrame:
    """A table as it is written; gaps only of `at_least_ns` and longer."""
    table = results.table(name)
    return table.filter(pl.col("duration_ns") >= at_least_ns) if name == "gaps" else table


def write_csv(table: pl.DataFrame, target: Path | BinaryIO) -> None:
    """A table as CSV: comma, newline, UTF-8, plain numbers, nothing for null, no formulas."""
    _cells(table).write_csv(target, float_scientific=False)


def _cells(table: pl.DataFrame) -> pl.DataFrame:
    """A table with texts as `csv_text` has them."""
    rows = plain(table)
    unsafe = f"{CSV_FORMULA}|{CONTROLS}"
    cells = {}
    for column in rows.select(pl.col(pl.String, pl.Categorical)):
        words = column.unique() if column.dtype == pl.Categorical else column
        if words.cast(pl.String).str.contains(unsafe).any():  # replacing takes long, few need it
            text = pl.col(column.name).cast(pl.String)
            cells[column.name] = text.str.replace_all(CONTROLS, "·").str.replace(
                CSV_FORMULA, "'${1}"
            )
    return rows.with_columns(**cells)


def write_gaps_csv(results: Results, target: BinaryIO, *, at_least_ns: int = 0) -> int:
    """The gaps of `at_least_ns` and longer as CSV, slice by slice; returns how many."""
    rows = 0
    for index, gaps in enumerate(results.gap_slices(at_least_ns)):
        _cells(gaps).write_csv(target, include_header=index == 0, float_scientific=False)
        rows += len(gaps)
    return rows


def write_gaps_parquet(results: Results, target: Path, *, at_least_ns: int = 0) -> None:
    """The gaps of `at_least_ns` and longer as Parquet, slice by slice."""
    slices = results.gap_slices(at_least_ns)
    rows = register_io_source(lambda *_: slices, schema=declaration("gaps").schema)
    rows.sink_parquet(target, row_group_size=SLICE_ROWS)


def write_parquet(table: pl.DataFrame, target: Path | BinaryIO) -> None:
    """A table as Parquet, which keeps the types."""
    table.write_parquet(target)


def write_files(
    results: Results, folder: Path, *, at_least_ns: int = 0, gaps_format: GapsFormat = "auto"
) -> None:
    """Every table's file and report.json into an existing folder."""
    # half of the writing is the gaps; the other tables are computed meanwhile
    with ThreadPoolExecutor(max_workers=1) as writer:
        written = writer.submit(
            _write_gaps, results, folder, form=gaps_format, at_least_ns=at_least_ns
        )
        for declared in declarations():
            if declared.csv == "never" or declared.in_slices:
                continue
            table = results.table(declared.name)
            if declared.csv == "always" or not table.is_empty():
                write_csv(table, folder / f"{declared.name}.csv")
        (folder / FILE).write_text(report_json(results), encoding="utf-8")
        written.result()


def _write_gaps(results: Results, folder: Path, *, form: GapsFormat, at_least_ns: int) -> None:
    """gaps.csv, or gaps.parquet if that is asked for or the CSV would be too large."""
    large = form == "auto" and _gaps_csv_bytes(results, at_least_ns) > LARGEST_GAPS_CSV_BYTES
    if form == "parquet" or large:
        write_gaps_parquet(results, folder / GAPS_PARQUET, at_least_ns=at_least_ns)
        return
    with (folder / GAPS_CSV).open("wb") as file:
        write_gaps_csv(results, file, at_least_ns=at_least_ns)


def _gaps_csv_bytes(results: Results, at_least_ns: int) -> float:
    """About how long gaps.csv gets: its first rows stand for all."""
    sample = next(iter(results.gap_slices(at_least_ns)))
    sampled = len(plain(sample).write_csv(include_header=False).encode())
    return sampled / max(len(sample), 1) * results.count_gaps(at_least_ns)
