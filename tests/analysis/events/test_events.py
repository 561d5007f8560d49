"""Events in order, and rows outside the recording."""

from pathlib import Path

import pytest

from nsysflow.analysis.analyze import Analysis, analyze
from nsysflow.analysis.load import load
from tests.exports import change, thread, write_export
from tests.oracle.model import Call
from tests.tiny import MAIN, PROCESS, Row, kernel, launch, opened, timeline_of


def launch_of_the_kernel(*rows: Row) -> tuple[int, int]:
    """When the launch of the one kernel began and ended."""
    ops = timeline_of(*rows).events.ops
    ((start, end),) = ops.select("launch_start_ns", "launch_end_ns").rows()
    return start, end


def test_a_kernel_is_launched_by_the_call_of_its_correlation_id() -> None:
    assert launch_of_the_kernel(launch(0, 5, 1), launch(10, 15, 2), kernel(20, 30, 2)) == (10, 15)


def test_of_a_runtime_call_and_the_driver_call_inside_it_the_outer_one_counts() -> None:
    inner = launch(12, 14, 2, name="cuLaunchKernel")
    assert launch_of_the_kernel(inner, launch(10, 15, 2), kernel(20, 30, 2)) == (10, 15)


def test_correlation_ids_of_another_process_do_not_join() -> None:
    other = Call(0, 5, 2 * PROCESS, 2 * MAIN, 2, "cudaLaunchKernel")
    assert launch_of_the_kernel(other, launch(10, 15, 2), kernel(20, 30, 2)) == (10, 15)


def test_rows_of_negative_length_are_dropped_and_counted() -> None:
    events = timeline_of(kernel(0, 10, 1), kernel(30, 20, 2), opened(9, 8, "odd")).events
    assert (len(events.ops), len(events.ranges), events.dropped) == (1, 0, 2)


def test_operations_are_sorted_by_start_whatever_their_order_in_the_report() -> None:
    events = timeline_of(kernel(50, 60, 1), kernel(0, 10, 2), kernel(20, 30, 3)).events
    assert events.ops["start_ns"].to_list() == [0, 20, 50]


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


def numbers(analysis: Analysis) -> list[list[tuple[object, ...]]]:
    tables = (analysis.accounting, analysis.phases, analysis.gaps, analysis.syncs)
    return [table.drop("report").rows() for table in tables]


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
def test_a_row_decades_away_changes_only_the_count_of_clock_jumps(
    tmp_path: Path, name: str, off_ns: int
) -> None:
    table = TABLES[name]
    again = f"INSERT INTO {table} SELECT * FROM {table} WHERE rowid = {THREADS}"
    away = f"UPDATE {table} SET start = start + {off_ns}, end = end + {off_ns}"
    path = change(small(tmp_path / "odd.sqlite"), again, f"{away} WHERE rowid > {THREADS}")
    odd, whole = analyze(load(path)), analyze(load(small(tmp_path / "whole.sqlite")))
    assert numbers(odd) == numbers(whole)
    assert odd.integrity.select("check", "count").rows() == [("clock jumps", 1)]


def test_a_row_a_month_away_is_counted_as_a_clock_jump_and_kept(tmp_path: Path) -> None:
    path = small(tmp_path / "r.sqlite")
    change(path, f"UPDATE {TABLES['KERNEL']} SET end = {30 * DAY_NS} WHERE rowid = {THREADS}")
    analysis = analyze(load(path))
    assert analysis.accounting["window_ns"].to_list() == [30 * DAY_NS]
    assert analysis.integrity.select("check", "count").rows() == [("clock jumps", 1)]
