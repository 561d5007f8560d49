"""Real reports analysed once for all tests, and what tests do with a trace of any kind."""

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
from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.declared.tables import TABLES
from nsysflow.analysis.options import Options
from nsysflow.analysis.tables.schema import SCHEMAS
from tests.oracle.export import read_export
from tests.oracle.model import PlainTrace
from tests.oracle.report import Report, Row
from tests.oracle.strategies import traces
from tests.oracle.tables import oracle_tables
from tests.reports import PACKED, sqlite_report

EXAMPLES: Final = int(os.environ.get("NSYSFLOW_EXAMPLES", "8"))
"""Random traces per test; `make hunt` takes more, and new ones."""

NAMES: Final = sorted(PACKED)
every_report = pytest.mark.parametrize("name", NAMES)
"""For what asks no more than the one analysis and the one oracle result that all tests share."""

KINDS: Final = (
    "h200-ddp-rank0",  # communication
    "h200-gpu-metrics",  # sampled counters
    "h200-graph-level",  # graphs traced whole
    "h200-nvtx-domain",  # domains with registered strings
    "h200-train",  # no window: start-up inside; backward launched by another thread
    "nan_check-sync",  # a window of steps, with the Python line of each call
    "synthetic-1",  # what no program makes: three processes on three GPUs
    "synthetic-3",  # as that, and an operation of zero length outside its device's window
)
few_reports = pytest.mark.parametrize("name", KINDS)
"""For what takes an analysis of its own: a report of each kind. Another sample of a kind that is
here adds time and no case."""

PARTS: Final = ("compute_ns", "comm_exposed_ns", "copy_exposed_ns", "idle_ns")
OF_REPORT: Final = {name: SCHEMAS[name] for name, table in TABLES.items() if table.of == "report"}
"""The columns of the tables that each report has, by name."""

CAUSE_COLUMNS: Final = [f"{cause}_ns" for cause in CAUSES]
STALL_COLUMNS: Final = ["sync_ns", "blocking_copy_ns", "alloc_ns"]


def any_trace(test: Callable[..., None]) -> Callable[..., None]:
    """Runs `test` on random traces, its first argument."""
    chosen = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    return chosen(given(traces())(test))


@cache
def loaded(name: str) -> nsysflow.Trace:
    """A real report as it is in the project: packed."""
    return nsysflow.load(PACKED[name])


@cache
def analysed(name: str) -> nsysflow.Analysis:
    """All of a real report."""
    return nsysflow.analyze(loaded(name))


@cache
def oracle_of(name: str) -> Report:
    """A real report as the oracle sees it, with the oracle's own reader."""
    with TemporaryDirectory() as folder:
        return Report(read_export(sqlite_report(Path(folder), name)))


@cache
def oracle_tables_of(name: str) -> dict[str, list[Row]]:
    """The oracle's tables of a real report, by name."""
    return oracle_tables(oracle_of(name))


def tables_of(
    trace: nsysflow.Trace,
    options: Options | None = None,
    *,
    only: Iterable[str] = tuple(OF_REPORT),
) -> dict[str, pl.DataFrame]:
    """Tables by name."""
    analysis = nsysflow.analyze(trace, options)
    return {name: getattr(analysis, name) for name in only}


def rows_of(rows: Iterable[Mapping[str, Any]], columns: list[str]) -> Counter[tuple[Any, ...]]:
    """How often each row is there."""
    return Counter(tuple(_plain(row[column]) for column in columns) for row in rows)


def _plain(value: object) -> object:
    """A value as both sides can be compared: shares and rates differ in a float's last bits."""
    return round(float(f"{value:.12g}"), 9) if isinstance(value, float) else value


def sums(frame: pl.DataFrame, columns: Iterable[str]) -> dict[str, int]:
    """The sum of each column."""
    return frame.select(pl.col(list(columns)).sum()).row(0, named=True)


def by_device(frame: pl.DataFrame, columns: Iterable[str]) -> dict[int, tuple[Any, ...]]:
    """The sums of the columns for each device; devices with nothing in them are left out."""
    summed = frame.group_by("device").agg(pl.col(list(columns)).sum())
    return {device: tuple(found) for device, *found in summed.rows() if any(found)}


def ops_of(trace: PlainTrace) -> int:
    """Operations that count: those of negative length are dropped."""
    return sum(op.end_ns >= op.start_ns for op in trace.ops)
