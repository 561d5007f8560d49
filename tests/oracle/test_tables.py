"""The oracle's tables: the schema's columns, sums that must agree, and a few cases by hand."""

import pytest
from hypothesis import HealthCheck, given, settings

from tests.analyses import EXAMPLES
from tests.oracle.account_table import accounting, projections, share
from tests.oracle.copies import copies, syncs
from tests.oracle.gap_tables import gap_histogram, gap_summary
from tests.oracle.gaps import CAUSES, Gap
from tests.oracle.launches import launches, starved
from tests.oracle.model import Call, Copy, Op, PlainTrace, Range, Shape, Thread
from tests.oracle.phase_table import phases
from tests.oracle.report import Report
from tests.oracle.stats import std
from tests.oracle.steps import steps
from tests.oracle.strategies import traces
from tests.oracle.sums import assert_sums_agree
from tests.oracle.tables import oracle_tables

PROCESS = 1 << 24
MAIN, AUTOGRAD = PROCESS | 1, PROCESS | 2


def kernel(start_ns: int, end_ns: int, correlation: int | None = None) -> Op:
    name = "void k<1>()"
    return Op(
        "kernel", start_ns, end_ns, 0, PROCESS, 7, correlation, None, name, "k", Shape(grid_x=264)
    )


def copy(start_ns: int, end_ns: int, correlation: int, source: str, target: str) -> Op:
    moved = Copy(8, "HtoD", source, target)
    name = "memcpy HtoD"
    return Op("memcpy", start_ns, end_ns, 0, PROCESS, 7, correlation, None, name, name, None, moved)


def call(start_ns: int, end_ns: int, name: str, correlation: int | None = None) -> Call:
    return Call(start_ns, end_ns, PROCESS, MAIN, correlation, name)


def push_pop(start_ns: int, end_ns: int | None, name: str, row: int, thread: int = MAIN) -> Range:
    return Range(start_ns, end_ns, "push_pop", PROCESS, thread, None, name, row)


@pytest.mark.slow
@settings(max_examples=4 * EXAMPLES, suppress_health_check=list(HealthCheck))
@given(traces())
def test_the_tables_of_any_trace_agree_with_each_other(trace: PlainTrace) -> None:
    report = Report(trace)
    assert_sums_agree(report, oracle_tables(report))


@settings(max_examples=4 * EXAMPLES, suppress_health_check=list(HealthCheck))
@given(traces())
def test_cutting_the_window_in_two_loses_nothing(trace: PlainTrace) -> None:
    report = Report(trace)
    for whole in accounting(report):
        if whole["start_ns"] is None:
            continue
        middle = (whole["start_ns"] + whole["end_ns"]) // 2
        device = whole["device"]
        halves = [
            row
            for bounds in ((whole["start_ns"], middle), (middle, whole["end_ns"]))
            for row in accounting(report, {device: [bounds]})
            if row["device"] == device
        ]
        for column in ("window", "compute", "comm_exposed", "copy_exposed", "idle"):
            column += "_ns"
            assert sum(half[column] for half in halves) == whole[column]
        for half in halves:
            assert sum(half[f"{cause}_ns"] for cause in CAUSES) == half["idle_ns"]


def test_a_cut_gap_shares_its_causes_by_largest_remainder() -> None:
    gap = Gap(0, 0, 10, next_op=0, prev_op=0)
    gap.causes.update(sync=3, host=3, launch=4)
    # 5 of 10 inside: 1.5, 1.5, 2.0; the tie goes to the first in the table
    assert {cause: ns for cause, ns in share(gap, 5).items() if ns} == {
        "sync": 2,
        "host": 1,
        "launch": 2,
    }


@pytest.mark.parametrize(
    ("values", "expected"), [([5], None), ([1, 3], 1), ([0, 3], 2), ([0, 7], 5), ([4, 4, 4], 0)]
)
def test_std_is_the_samples_rounded(values: list[int], expected: int | None) -> None:
    assert std(values) == expected


def test_run_ahead_counts_operations_that_are_queued_and_not_started() -> None:
    trace = PlainTrace(
        ops=(kernel(10, 100, 1), kernel(100, 200, 2), kernel(200, 300, 3)),
        calls=tuple(call(5 * i, 5 * i + 1, "cudaLaunchKernel", i) for i in (1, 2, 3)),
        ranges=(push_pop(0, 100, "a", 0),),
    )
    (row,) = launches(Report(trace))
    # launches at 5, 10, 15: at 10 the first has just started, at 15 the second waits
    assert row["run_ahead_median"] == 0.0
    assert (row["latency_median_ns"], row["queue_median_ns"]) == (90, 89)
    assert row["api_ns"] == 3


def test_a_starved_window_ends_at_a_long_gap_of_another_cause() -> None:
    ops, calls = [], []
    for i in range(1, 21):
        # every 10 us a launch of 5 us and directly after it a kernel of 1 us; one long pause
        at = 10_000 * i + (1_000_000 if i > 9 else 0)
        calls.append(call(at, at + 5_000, "cudaLaunchKernel", i))
        ops.append(kernel(at + 5_000, at + 6_000, i))
    rows = starved(Report(PlainTrace(ops=tuple(ops), calls=tuple(calls))))
    assert [row["ops"] for row in rows] == [10, 8]
    assert [row["launch_idle_ns"] for row in rows] == [90_000, 72_000]
    assert {row["median_interval_ns"] for row in rows} == {10_000}
    assert rows[0]["graph_estimate_ns"] == 10 * 1_500


@pytest.mark.parametrize(
    ("source", "call_end_ns", "sync_at_ns", "label"),
    [
        ("pageable", 90, None, "pageable_blocking"),
        ("pinned", 20, None, "pinned_async"),
        ("pinned", 90, None, "pinned_blocking"),
        ("pinned", 20, 50_020, "pinned_blocking"),
        ("pinned", 20, 50_021, "pinned_async"),
        ("device", 20, None, "device"),
    ],
)
def test_a_copy_is_labelled_by_its_host_memory_and_what_its_thread_does(
    source: str, call_end_ns: int, sync_at_ns: int | None, label: str
) -> None:
    calls = [call(10, call_end_ns, "cudaMemcpyAsync", 1), call(30, 31, "cudaEventQuery")]
    if sync_at_ns is not None:
        calls.append(call(sync_at_ns, sync_at_ns + 5, "cudaStreamSynchronize"))
    trace = PlainTrace(ops=(copy(40, 90, 1, source, "device"),), calls=tuple(calls))
    (row,) = copies(Report(trace))
    assert row["copy_label"] == label
    assert (row["bytes"], row["exposed_ns"]) == (8, 50)


def test_a_sync_is_charged_for_the_python_that_it_exposes() -> None:
    #  GPU   |--k1--|                |--k2--|
    #  host  launch sync(10..1000)   python 1000..101000 launch
    trace = PlainTrace(
        ops=(kernel(10, 1_000, 1), kernel(101_005, 102_000, 2)),
        calls=(
            call(0, 10, "cudaLaunchKernel", 1),
            call(10, 1_001, "cudaStreamSynchronize", 3),
            call(101_001, 101_005, "cudaLaunchKernel", 2),
        ),
    )
    report = Report(trace)
    (row,) = syncs(report)
    # 1 ns is inside the gap (step 2); it blocked 990 ns before the gap (step 3)
    assert row["induced_idle_ns"] == 991
    assert row["gpu_busy_ns"] == 990
    (gap,) = report.gaps.gaps
    assert gap.causes["host"] == 100_000 - 990
    culprits = {(part["cause"], part["culprit"]) for part in gap_summary(report)}
    assert culprits == {
        ("sync", "cudaStreamSynchronize"),
        ("host", ""),
        ("launch", "cudaLaunchKernel"),
    }
    assert gap_histogram(report)[0]["length"] == "< 1 ms"


def test_an_inherited_range_counts_as_one_instance() -> None:
    trace = PlainTrace(
        ops=(kernel(20, 30, 1), kernel(60, 80, 2)),
        calls=(
            Call(12, 13, PROCESS, AUTOGRAD, 1, "cudaLaunchKernel"),
            Call(52, 53, PROCESS, AUTOGRAD, 2, "cudaLaunchKernel"),
        ),
        ranges=(
            push_pop(0, 100, "step", 0),
            push_pop(10, 90, "backward", 1),
            push_pop(11, 40, "mm", 2, AUTOGRAD),
            push_pop(200, 200, "never", 3),
        ),
        threads=(Thread(PROCESS, AUTOGRAD, "pt_autograd_0"),),
    )
    rows = {row["path"]: row for row in phases(Report(trace))}
    assert set(rows) == {"step", "step/backward", "step/backward/mm"}
    backward = rows["step/backward"]
    assert (backward["instances"], backward["ops"], backward["borrowed_ops"]) == (1, 2, 2)
    # 80 ns are the main thread's; the 29 ns of `mm` are the autograd thread's own
    assert (backward["span_ns"], backward["busy_ns"], backward["host_wall_ns"]) == (60, 30, 80)
    assert rows["step/backward/mm"]["host_wall_ns"] == 29
    assert rows["step/backward/mm"]["span_ns"] == 10
    assert backward["exclusive_kernel_ns"] == 20


def test_a_step_runs_to_the_first_operation_of_the_next() -> None:
    starts = (0, 1_000, 2_000, 3_000)
    trace = PlainTrace(
        ops=tuple(kernel(at + 100, at + 400, i) for i, at in enumerate(starts, 1)),
        calls=tuple(
            call(at + 50, at + 60, "cudaLaunchKernel", i) for i, at in enumerate(starts, 1)
        ),
        ranges=tuple(
            push_pop(at, None if at == 3_000 else at + 900, "step", row)
            for row, at in enumerate(starts)
        ),
    )
    report = Report(trace)
    rows = steps(report)
    assert [row["duration_ns"] for row in rows] == [1_000, 1_000, 1_000, 300]
    assert [row["idle_ns"] for row in rows] == [700, 700, 700, 0]
    assert [row["steady"] for row in rows] == [False, False, True, False]
    assert projections(report, "step") == {0: [(at + 100, at + 400) for at in starts]}
