"""Communication kernels: which of NCCL's ranges has their message."""

import nsysflow
from nsysflow.analysis.options import Options
from tests.oracle.comm import comm
from tests.oracle.model import Call, Message, Op, PlainTrace, Range, Shape, to_trace
from tests.oracle.report import Report

PROCESS, THREAD = 1 << 24, 1 << 24 | 1


def one_kernel(*asked: tuple[int, int, str, int]) -> PlainTrace:
    """A collective launched at 6, inside NCCL's ranges (start, end, name, bytes)."""
    return PlainTrace(
        ops=(Op("kernel", 10, 20, 0, PROCESS, 7, 1, None, "ncclDev", "ncclDev", Shape()),),
        calls=(Call(6, 8, PROCESS, THREAD, 1, "cudaLaunchKernelExC"),),
        ranges=tuple(
            Range(start_ns, end_ns, "push_pop", PROCESS, THREAD, "NCCL", name, row)
            for row, (start_ns, end_ns, name, _) in enumerate(asked)
        ),
        messages=tuple(Message(start_ns, THREAD, size, None) for start_ns, _, _, size in asked),
    )


def test_the_innermost_of_nested_ranges_gives_the_message() -> None:
    for outer, inner in (((2, 9), (4, 9)), ((4, 9), (4, 7)), ((4, 9), (4, 9))):
        trace = one_kernel((*outer, "ncclGroup", 1), (*inner, "ncclAllReduce", 64))
        (row,) = nsysflow.analyze(to_trace(trace)).comm.to_dicts()
        assert row["operation"] == "ncclAllReduce"
        assert row == comm(Report(trace))[0]


def test_a_range_that_ends_where_the_launch_begins_does_not_count() -> None:
    trace = one_kernel((2, 6, "ncclBroadcast", 64))
    (row,) = nsysflow.analyze(to_trace(trace)).comm.to_dicts()
    assert (row["operation"], row["bytes"]) == (None, None)
    assert row == comm(Report(trace))[0]


def test_a_collective_that_runs_into_a_window_takes_time_there_and_is_not_counted() -> None:
    trace = to_trace(one_kernel((2, 9, "ncclAllReduce", 64)))
    (row,) = nsysflow.analyze(trace, Options(from_ns=13, to_ns=18)).comm.to_dicts()
    assert (row["count"], row["bytes"], row["busy_ns"], row["exposed_ns"]) == (0, None, 5, 5)
