"""The tables as files: CSV for people and diff, Parquet for programs, and report.json."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Final

import polars as pl

from nsysflow.analysis.declared.tables import DECLARED
from nsysflow.report import units
from nsysflow.report.document import plain
from nsysflow.report.document import report_json as report_json
from nsysflow.report.layout import Block, figure, words
from nsysflow.report.results import Results

WHERE_THERE: Final = tuple(table.name for table in DECLARED if table.csv == "with rows")
"""The tables that become a CSV file only where they have rows."""

_INSTANTS: Final = ("start_ns", "end_ns")


def named_table(results: Results, name: str, *, at_least_ns: int = 0) -> pl.DataFrame:
    """A table as it is written; gaps only of `at_least_ns` and longer."""
    table = results.table(name)
    return table.filter(pl.col("duration_ns") >= at_least_ns) if name == "gaps" else table


def write_csv(table: pl.DataFrame, target: Path | BinaryIO) -> None:
    """A table as CSV: comma, newline, UTF-8, plain numbers, nothing for null."""
    plain(table).write_csv(target, float_scientific=False)


def write_gaps_csv(results: Results, target: BinaryIO, *, at_least_ns: int = 0) -> int:
    """The gaps of `at_least_ns` and longer as CSV, slice by slice; returns how many."""
    rows = 0
    for index, gaps in enumerate(results.gap_slices(at_least_ns)):
        plain(gaps).write_csv(target, include_header=index == 0, float_scientific=False)
        rows += len(gaps)
    return rows


def write_parquet(table: pl.DataFrame, target: Path | BinaryIO) -> None:
    """A table as Parquet, which keeps the types."""
    table.write_parquet(target)


def write_files(results: Results, folder: Path, *, at_least_ns: int = 0) -> None:
    """Every CSV file and report.json into an existing folder."""
    # half of the writing is gaps.csv; the other tables are computed meanwhile
    with (folder / "gaps.csv").open("wb") as file, ThreadPoolExecutor(max_workers=1) as writer:
        written = writer.submit(write_gaps_csv, results, file, at_least_ns=at_least_ns)
        for declared in DECLARED:
            if declared.csv == "never" or declared.in_slices:
                continue
            table = results.table(declared.name)
            if declared.csv == "always" or not table.is_empty():
                write_csv(table, folder / f"{declared.name}.csv")
        (folder / "report.json").write_text(report_json(results), encoding="utf-8")
        written.result()


def readable(table: pl.DataFrame, title: str) -> Block:
    """A table in human units, without its empty columns and a `report` that is always the same."""
    kept = [
        series
        for series in table
        if series.null_count() < len(series) and not (series.name == "report" and _same(series))
    ]
    return Block(
        title=title,
        columns=tuple(
            figure(_head(series.name)) if series.dtype.is_numeric() else words(series.name)
            for series in kept
        ),
        rows=tuple(zip(*(_cells(series) for series in kept), strict=True)),
    )


def _same(series: pl.Series) -> bool:
    return series.n_unique() == 1


def _head(name: str) -> str:
    return name.removesuffix("_ns").removesuffix("_pct").replace("_", " ")


def _cells(series: pl.Series) -> Iterator[str]:
    values = series.cast(pl.String) if series.dtype in (pl.Enum, pl.Categorical) else series
    for value in values:
        yield _cell(series.name, value)


def _cell(name: str, value: Any) -> str:  # noqa: ANN401
    """One value by its column's unit."""
    if value is None:
        return ""
    if name in _INSTANTS:
        return units.instant(value)
    if name.endswith("_ns"):
        return units.duration(value)
    if name.endswith("_pct"):
        return units.percent(value)
    if name in ("bytes", "shared_bytes"):
        return units.size(value)
    if isinstance(value, float):
        return units.significant(value)
    return str(value)
