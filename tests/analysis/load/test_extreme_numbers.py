"""Ids, sizes and times near the ends of their ranges give results or an error of ours."""

import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nsysflow.analysis.analyze import Analysis, analyze
from nsysflow.analysis.load import load
from nsysflow.analysis.load.export_tables import SAMPLED, TABLES
from nsysflow.analysis.trace import NoteKind
from nsysflow.base.errors import Damaged, ReportError
from tests.analyses import tables_of, tables_of_report
from tests.analysis.load.kineto.traces import call, event, kernel, write
from tests.analysis.load.test_folders import as_folder
from tests.exports import change, note_kinds, thread, write_export
from tests.reports import sqlite_report

VALUES: Final = (
    *(-(2**63), -(2**62), -(2**31) - 1, -(2**31), -1, 0),
    *(2**24, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1),
)
FARTHEST: Final = (-(2**63), -(2**62), 2**62, 2**63 - 1)
TOO_WIDE: Final = (-(2**63), -(2**31) - 1, 2**32, 2**63 - 1)
HARMLESS: Final = "cuKernelGetName"
KERNELS, CALLS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"

DETAILS: Final = {table.name for table in TABLES.values() if table.detail}

Column = tuple[str, str]
"""A table and one of its columns."""


def columns(dtypes: tuple[type[pl.DataType], ...]) -> list[Column]:
    """The columns of these types that we read."""
    return sorted(
        {
            (table.name, column)
            for table in (*TABLES.values(), *SAMPLED.values())
            for column, dtype in table.columns.items()
            if dtype in dtypes
        }
    )


def held(path: Path, wanted: list[Column]) -> list[Column]:
    """The columns in which an export has a number."""
    with closing(sqlite3.connect(path)) as db:
        there = "SELECT 1 FROM pragma_table_info(?) WHERE name = ?"
        return [
            (table, column)
            for table, column in wanted
            if db.execute(there, (table, column)).fetchone()
            and db.execute(f"SELECT max({column}) FROM {table}").fetchone()[0] is not None
        ]


def is_id(column: Column) -> bool:
    """Whether a column holds ids, not times, sizes or kinds."""
    return column[1].lower().endswith("id")


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """A real report of one process with backtraces, kernels of graphs and copies."""
    return sqlite_report(tmp_path, "nan_check-sync")


def test_a_number_too_wide_for_its_column_is_damage_or_leaves_a_table_of_details_out(
    report: Path,
) -> None:
    narrow = held(report, columns((pl.Int32, pl.UInt32)))
    assert len(narrow) > 15
    for number, (table, column) in enumerate(narrow):
        value = TOO_WIDE[number % len(TOO_WIDE)]
        path = Path(shutil.copy(report, report.with_name("changed.sqlite")))
        last = f"SELECT max(rowid) FROM {table} WHERE {column} NOT NULL"
        change(path, f"UPDATE {table} SET {column} = {value} WHERE rowid = ({last})")
        if table in DETAILS:
            assert NoteKind.UNREAD_TABLES in note_kinds(load(path))
            continue
        with pytest.raises(Damaged):
            load(path)


@pytest.mark.parametrize(
    ("ids", "values", "turn"),
    [
        *((True, VALUES, turn) for turn in range(0, len(VALUES), 3)),
        *((False, FARTHEST, turn) for turn in range(0, len(FARTHEST), 2)),
    ],
)
def test_any_numbers_of_64_bits_give_every_table(
    report: Path, ids: bool, values: tuple[int, ...], turn: int
) -> None:
    """Each value is in a few columns of each round, and in others in the next one."""
    wide = [each for each in held(report, columns((pl.Int64,))) if is_id(each) == ids]
    assert len(wide) > 10
    for number, (table, column) in enumerate(wide):
        value = values[(turn + number) % len(values)]
        change(report, f"UPDATE {table} SET {column} = {value} WHERE rowid % 2")
    tables_of(load(report))


@pytest.mark.parametrize("value", FARTHEST[::3])
def test_kernels_of_one_correlation_id_give_every_table(report: Path, value: int) -> None:
    tables_of(load(change(report, f"UPDATE {KERNELS} SET correlationId = {value}")))


def test_correlation_ids_may_be_any_numbers(report: Path) -> None:
    before, added = tables_of_report("nan_check-sync"), 2**62
    with closing(sqlite3.connect(report)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master")]
    correlated = [name for name in names if name.startswith("CUPTI_ACTIVITY_KIND_")]
    change(
        report,
        *(f"UPDATE {name} SET correlationId = correlationId + {added}" for name in correlated),
        # a call that launches nothing: its id is further from the others than 63 bits
        f"UPDATE {CALLS} SET correlationId = {-added} WHERE rowid = (SELECT min(rowid) FROM"
        f" {CALLS} WHERE nameId = (SELECT id FROM StringIds WHERE value LIKE '{HARMLESS}%'))",
    )
    after = tables_of(load(report))
    for name, table in before.items():
        assert_frame_equal(table, after[name])


@pytest.mark.parametrize("value", [2**62, 2**63, 2**64 - 1])
def test_unsigned_ids_of_a_parquetdir_wrap(report: Path, tmp_path: Path, value: int) -> None:
    folder = as_folder(report, tmp_path / "folder", "parquetdir")
    file = folder / f"{KERNELS}.parquet"
    correlated = pl.lit(value, pl.UInt64).alias("correlationId")
    pl.read_parquet(file).with_columns(correlated).write_parquet(file)
    trace = load(folder)
    signed = value if value < 2**63 else value - 2**64
    assert trace.ops.filter(kind="kernel")["correlation"].unique().to_list() == [signed]


@pytest.mark.parametrize("value", [*VALUES, 2**63, 10**40])
def test_a_kineto_trace_with_any_numbers_is_read_or_refused(tmp_path: Path, value: int) -> None:
    for where in ("correlation", "stream", "device", "graph node id", "pid", "tid", "ts", "dur"):
        events = [kernel(correlation=1), call(1, 1), event("user_annotation", "a")]
        for one in events:
            held_by = one if where in one else one.get("args", {})
            held_by[where] = value
        with suppress(ReportError):
            trace = load(write(tmp_path, *events))
            if where == "correlation" and value in FARTHEST:
                tables_of(trace)


THREADS = 30
DAY_NS = 86_400 * 10**9
CENTURY_NS = 2**62 - DAY_NS
"""As far away as a time may be."""


def small(path: Path) -> Path:
    """Work of two threads, each in its own range."""
    rows = [{"start": 100 * n, "end": 100 * n + 50, "correlationId": n + 1} for n in range(THREADS)]
    host = [row | {"globalTid": thread(1000 + n)} for n, row in enumerate(rows)]
    return write_export(
        path,
        kernels=rows,
        calls=host,
        nvtx=[row | {"text": f"part {n}", "end": 3000} for n, row in enumerate(host)],
        overhead=host,
    )


Numbers = list[list[tuple[object, ...]]]


def numbers(analysis: Analysis) -> Numbers:
    tables = (analysis.accounting, analysis.phases, analysis.gaps, analysis.syncs)
    return [table.drop("report").rows() for table in tables]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Numbers:
    """Those of the report as it is."""
    return numbers(analyze(load(small(tmp_path_factory.mktemp("whole") / "whole.sqlite"))))


@pytest.mark.parametrize(
    ("table", "off_ns"),
    [
        *((CALLS, 20_000 * DAY_NS), (KERNELS, CENTURY_NS), (KERNELS, -CENTURY_NS)),
        *(("NVTX_EVENTS", CENTURY_NS), ("PROFILER_OVERHEAD", -CENTURY_NS)),
    ],
)
def test_a_row_decades_away_is_only_a_clock_jump(
    tmp_path: Path, whole: Numbers, table: str, off_ns: int
) -> None:
    again = f"INSERT INTO {table} SELECT * FROM {table} WHERE rowid = {THREADS}"
    away = f"UPDATE {table} SET start = start + {off_ns}, end = end + {off_ns}"
    path = change(small(tmp_path / "odd.sqlite"), again, f"{away} WHERE rowid > {THREADS}")
    odd = analyze(load(path))
    assert numbers(odd) == whole
    assert odd.integrity.select("check", "count").rows() == [("clock jumps", 1)]


def test_a_row_a_month_away_is_counted_as_a_clock_jump_and_kept(tmp_path: Path) -> None:
    path = small(tmp_path / "r.sqlite")
    change(path, f"UPDATE {KERNELS} SET end = {30 * DAY_NS} WHERE rowid = {THREADS}")
    analysis = analyze(load(path))
    assert analysis.accounting["window_ns"].to_list() == [30 * DAY_NS]
    assert analysis.integrity.select("check", "count").rows() == [("clock jumps", 1)]


def test_durations_of_a_century_are_left_out_rather_than_summed_beyond_63_bits(
    tmp_path: Path,
) -> None:
    rows = [{"start": 100 * n, "end": 100 * n + 50, "correlationId": n + 1} for n in range(9)]
    endless = [row | ({"end": CENTURY_NS} if n % 3 else {}) for n, row in enumerate(rows)]
    analysis = analyze(load(write_export(tmp_path / "r.sqlite", kernels=endless, calls=rows)))
    assert analysis.kernels.select("count", "total_ns", "p95_ns").rows() == [(3, 150, 50)]
    assert dict(analysis.integrity.select("check", "count").rows())["clock jumps"] == 6
