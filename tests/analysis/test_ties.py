"""Operations and calls that differ in little: which of them a gap belongs to."""

from dataclasses import replace

import nsysflow
from tests.oracle.gap_tables import gaps
from tests.oracle.model import Call, Op, PlainTrace, Range, Shape, to_trace
from tests.oracle.report import Report

PROCESSES = (1 << 24, 2 << 24)


def alike() -> PlainTrace:
    """Two processes launch equal kernels at the same times on one GPU, each in its own range."""
    times = ((1, 5, 10, 20), (22, 25, 30, 40))
    return PlainTrace(
        ops=tuple(
            Op("kernel", start, end, 0, process, 7, number, None, "k", "k", Shape())
            for process in PROCESSES
            for number, (_, _, start, end) in enumerate(times, start=1)
        ),
        calls=tuple(
            Call(begin, done, process, process | 1, number, "cudaLaunchKernel")
            for process in PROCESSES
            for number, (begin, done, _, _) in enumerate(times, start=1)
        ),
        ranges=tuple(
            Range(0, 50, "push_pop", process, process | 1, None, name, row)
            for row, (process, name) in enumerate(zip(PROCESSES, "ab", strict=True))
        ),
    )


def test_the_first_of_two_processes_with_equal_operations_ends_a_gap_in_any_order_of_rows() -> None:
    model = alike()
    trace = to_trace(model)
    (row,) = nsysflow.analyze(trace).gaps.to_dicts()
    assert row["phase"] == "a"
    # the last process's kernel begins the gap; it is another process, so no stall is charged
    assert row == gaps(Report(model))[0]
    for name in ("ops", "calls", "ranges"):
        turned = replace(trace, **{name: getattr(trace, name).reverse()})
        assert nsysflow.analyze(turned).gaps.to_dicts() == [row]


def test_the_longer_of_two_slow_first_launches_that_begin_together_loaded_the_code() -> None:
    process = PROCESSES[0]
    threads = (process | 1, process | 2)
    begun, slow = (5, 10), (5, 1_000_006)
    model = PlainTrace(
        ops=(
            Op("kernel", 1, 4, 0, process, 7, 1, None, "other", "other", Shape()),
            Op("kernel", 11, 16, 0, process, 7, 2, None, "k", "k", Shape()),
            Op("kernel", 1_000_007, 1_000_012, 0, process, 7, 3, None, "k", "k", Shape()),
        ),
        calls=(
            Call(0, 1, process, threads[0], 1, "cudaLaunchKernel"),
            Call(*begun, process, threads[0], 2, "cudaLaunchKernel"),
            Call(*slow, process, threads[1], 3, "cudaLaunchKernel"),
        ),
    )
    rows = nsysflow.analyze(to_trace(model)).gaps.to_dicts()
    assert rows == gaps(Report(model))
    assert rows[-1]["cause"] == "module_load"


def test_the_earlier_of_two_calls_with_equal_parts_of_a_gap_is_the_culprit() -> None:
    process, thread = PROCESSES[0], PROCESSES[0] | 1
    model = PlainTrace(
        ops=(
            Op("kernel", 2, 60, 0, process, 7, 1, None, "k", "k", Shape()),
            Op("kernel", 90, 95, 0, process, 7, 3, None, "k", "k", Shape()),
            Op("graph", 100, 105, 0, process, 7, 2, None, "graph", "graph", None),
        ),
        calls=(
            Call(0, 1, process, thread, 1, "cudaLaunchKernel"),
            Call(60, 72, process, thread, 2, "cudaGraphLaunch"),
            Call(72, 84, process, thread, 3, "cudaLaunchKernel"),
        ),
    )
    rows = nsysflow.analyze(to_trace(model)).gaps.to_dicts()
    assert rows == gaps(Report(model))
    assert (rows[0]["cause"], rows[0]["culprit"]) == ("launch", "cudaGraphLaunch")
