"""Operations that are alike but for their process: which of them a gap lies between."""

from dataclasses import replace

import nsysflow
from tests.twin.gap_tables import gaps
from tests.twin.model import Call, Op, Range, Shape, TwinTrace, to_trace
from tests.twin.report import Report

PROCESSES = (1 << 24, 2 << 24)


def alike() -> TwinTrace:
    """Two processes that launch two equal kernels at the same times on one GPU, each in a range of
    its own."""
    times = ((1, 5, 10, 20), (22, 25, 30, 40))
    return TwinTrace(
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


def test_of_equal_operations_the_first_process_s_ends_a_gap_in_any_order_of_rows() -> None:
    model = alike()
    trace = to_trace(model)
    (row,) = nsysflow.analyze(trace).gaps.to_dicts()
    assert row["phase"] == "a"
    # the last process's began it: another process's call, so no stall is looked for before it
    assert row == gaps(Report(model))[0]
    for name in ("ops", "calls", "ranges"):
        turned = replace(trace, **{name: getattr(trace, name).reverse()})
        assert nsysflow.analyze(turned).gaps.to_dicts() == [row]
