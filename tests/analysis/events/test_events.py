"""Rows outside the recording."""

from pathlib import Path

import pytest

from nsysflow.analysis.analyze import Analysis, analyze
from nsysflow.analysis.load import load
from tests.exports import change, thread, write_export

THREADS = 30
DAY_NS = 86_400 * 10**9
TABLES = {
    "RUNTIME": "CUPTI_ACTIVITY_KIND_RUNTIME",
    "KERNEL": "CUPTI_ACTIVITY_KIND_KERNEL",
    "NVTX": "NVTX_EVENTS",
    "OVERHEAD": "PROFILER_OVERHEAD",
}


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
    ("name", "off_ns"),
    [
        ("RUNTIME", 20_000 * DAY_NS),
        ("KERNEL", 2**62),
        ("KERNEL", -(2**62)),
        ("NVTX", 2**62),
        ("OVERHEAD", -(2**62)),
    ],
)
def test_a_row_decades_away_is_only_a_clock_jump(
    tmp_path: Path, whole: Numbers, name: str, off_ns: int
) -> None:
    table = TABLES[name]
    again = f"INSERT INTO {table} SELECT * FROM {table} WHERE rowid = {THREADS}"
    away = f"UPDATE {table} SET start = start + {off_ns}, end = end + {off_ns}"
    path = change(small(tmp_path / "odd.sqlite"), again, f"{away} WHERE rowid > {THREADS}")
    odd = analyze(load(path))
    assert numbers(odd) == whole
    assert odd.integrity.select("check", "count").rows() == [("clock jumps", 1)]


def test_a_row_a_month_away_is_counted_as_a_clock_jump_and_kept(tmp_path: Path) -> None:
    path = small(tmp_path / "r.sqlite")
    change(path, f"UPDATE {TABLES['KERNEL']} SET end = {30 * DAY_NS} WHERE rowid = {THREADS}")
    analysis = analyze(load(path))
    assert analysis.accounting["window_ns"].to_list() == [30 * DAY_NS]
    assert analysis.integrity.select("check", "count").rows() == [("clock jumps", 1)]
