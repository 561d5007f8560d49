"""Real reports, analysed once for all tests, and helpers for any trace."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings

import nsysflow
from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.options import Options
from nsysflow.analysis.tables.index import ABOUT, declarations
from nsysflow.report.results import Origin, Results
from tests.oracle.export import read_export
from tests.oracle.once import unmeasured
from tests.oracle.report import Report, Row
from tests.oracle.strategies import several, traces
from tests.oracle.tables import oracle_tables
from tests.reports import KINDS as KINDS
from tests.reports import PACKED, ROOT, RULES, sqlite_report

EXAMPLES: Final = int(os.environ.get("NSYSFLOW_EXAMPLES", "8"))
"""Random traces per test; `make hunt` draws more and new ones."""

NAMES: Final = sorted(PACKED)
LARGE: Final = (
    *("h200-backtrace", "h200-bottlenecks", "h200-gpt2-eager", "launch_bound-eager-plain"),
    *("sum_many-loop", "trainstep-torch"),
)
"""Others are of their kinds, and the oracle takes up to 15 s of each: they are long."""

every_report = pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.long if each in LARGE else ()) for each in NAMES]
)
"""For tests that need only the analysis and the oracle result that all tests share."""

few_reports = pytest.mark.parametrize("name", KINDS)
"""For tests that need an analysis of their own: one report of each kind. A second one of the same
kind would add time but no case."""

reports_of_rules = pytest.mark.parametrize(
    "name", [pytest.param(each, marks=() if each in RULES else pytest.mark.long) for each in NAMES]
)
"""For tests of findings, which take a second or more of each report; the other ones are long."""

PARTS: Final = ("compute_ns", "comm_exposed_ns", "copy_exposed_ns", "idle_ns")
SCHEMAS: Final = {table.name: table.schema for table in declarations()}
"""The columns of every table, by name."""

OF_REPORT: Final = {
    table.name: table.schema for table in declarations(ABOUT) if table.scope == "report"
}
"""The columns of the tables that each report has, by name."""

CAUSE_COLUMNS: Final = [f"{cause}_ns" for cause in CAUSES]
STALL_COLUMNS: Final = ["sync_ns", "blocking_copy_ns", "alloc_ns"]


def any_trace(test: Callable[..., None]) -> Callable[..., None]:
    """Runs `test` on reports of random traces, its first argument."""
    chosen = settings(max_examples=EXAMPLES // 2, suppress_health_check=list(HealthCheck))
    return chosen(given(several(traces()))(test))


@cache
def loaded(name: str) -> nsysflow.Trace:
    """The path of a real report, packed."""
    return nsysflow.load(PACKED[name])


@cache
def analysed(name: str) -> nsysflow.Analysis:
    """The analysis of a whole real report."""
    return nsysflow.analyze(loaded(name))


@cache
def run_of(name: str) -> Results:
    """A real report, analysed whole, as if its path was typed at the repository's root."""
    path = PACKED[name].relative_to(ROOT)
    return Results([analysed(name)], origin=Origin(paths={name: path}, typed=(path,)))


@cache
def oracle_of(name: str) -> Report:
    """A real report, read by the oracle's own reader."""
    with TemporaryDirectory() as folder:
        return Report(read_export(sqlite_report(Path(folder), name)))


@cache
def oracle_tables_of(name: str) -> dict[str, list[Row]]:
    """The oracle's tables of a real report, by name."""
    return oracle_tables(oracle_of(name))


def tables_of(
    trace: nsysflow.Trace, options: Options | None = None, *, only: Iterable[str] = tuple(OF_REPORT)
) -> dict[str, pl.DataFrame]:
    """Tables by name."""
    analysis = nsysflow.analyze(trace, options)
    return {name: getattr(analysis, name) for name in only}


def tables_of_report(name: str) -> dict[str, pl.DataFrame]:
    """Tables of a real report by name, of the analysis that all tests share."""
    return {table: getattr(analysed(name), table) for table in OF_REPORT}


@unmeasured
def rows_of(rows: Iterable[Mapping[str, Any]], columns: list[str]) -> Counter[tuple[Any, ...]]:
    """How often each row occurs."""
    return Counter(tuple(_plain(row[column]) for column in columns) for row in rows)


def _plain(value: object) -> object:
    """A value for comparison: shares and rates differ in a float's last bits."""
    if isinstance(value, list):
        return tuple(value)
    return round(float(f"{value:.12g}"), 9) if isinstance(value, float) else value


def sums(frame: pl.DataFrame, columns: Iterable[str]) -> dict[str, int]:
    """The sum of each column."""
    return frame.select(pl.col(list(columns)).sum()).row(0, named=True)


def by_device(frame: pl.DataFrame, columns: Iterable[str]) -> dict[int, tuple[Any, ...]]:
    """The sums of the columns for each device, without devices whose sums are all 0."""
    summed = frame.group_by("device").agg(pl.col(list(columns)).sum())
    return {device: tuple(found) for device, *found in summed.rows() if any(found)}
