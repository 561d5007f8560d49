"""Readings of threads and processes, from marks of ours and beside a Kineto trace."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from nsysflow.analysis.load import load
from tests.analysis.load.frames import loaded_and_packed
from tests.analysis.load.kineto.traces import event, kernel, write
from tests.analysis.load.test_gpu_states import BASE_NS, mark
from tests.exports import process, thread, write_export
from tests.oracle.export import read_export
from tests.oracle.model import from_trace

OF_THREAD: Final = [1000, 5_000, 700]
OF_PROCESS: Final = [4, 900, 20, 3_600, 2_500, 10]


def text(key: str, *rows: Any) -> str:
    return json.dumps({"nsysflow": {key: rows}})


def test_marks_hold_readings_of_their_process(tmp_path: Path) -> None:
    path = write_export(
        tmp_path / "r.sqlite",
        kernels=[{}],
        calls=[{}],
        nvtx=[
            mark(5, text("thread_cpu", OF_THREAD)),
            mark(6, text("process_cpu", OF_PROCESS)),
            mark(7, text("thread_cpu", [2001, 0, 1]), thread(2000, 2000)),
            mark(8, text("process_cpu", [1, 0, 0, None, None, None]), thread(2000, 2000)),
        ],
    )
    for trace in loaded_and_packed(path):
        assert trace.thread_cpu.sort("time_ns").rows() == [
            (5, thread(), 5_000, 700),
            (7, thread(2001, 2000), 0, 1),
        ]
        assert trace.process_cpu.sort("time_ns").rows() == [
            (6, process(), *OF_PROCESS),
            (8, process(2000), 1, 0, 0, None, None, None),
        ]
        assert trace.ranges.is_empty()
    plain, found = read_export(path), from_trace(load(path))
    assert {*found.thread_cpu} == {*plain.thread_cpu}
    assert {*found.process_cpu} == {*plain.process_cpu}


ODD: Final[dict[str, list[Any]]] = {
    "thread_cpu": [
        *([-1, 1, 1], [1 << 24, 1, 1], [1, -1, 1], [1, 1, 1 << 62], [1, 1], [1, 1, 1, 1]),
        *([1, 1.5, 1], [1, "1", 1], [1, None, 1], {"a": 1}, None),
    ],
    "process_cpu": [
        *([-1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [1, None, 1, 1, 1, 1], [1, 1, 1, 1, 1 << 31, 1]),
        *([1, 1, 1 << 70, 1, 1, 1], [1, 1, 1, 1, 1, 0.5], "busy", None),
    ],
}


@pytest.mark.parametrize(("key", "good"), [("thread_cpu", OF_THREAD), ("process_cpu", OF_PROCESS)])
def test_impossible_readings_are_left_out(key: str, good: list[int], tmp_path: Path) -> None:
    rows = [mark(at, text(key, good, odd)) for at, odd in enumerate(ODD[key])]
    rows.append(mark(99, text(key, good)))
    path = write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}], nvtx=rows)
    for trace in loaded_and_packed(path):
        assert getattr(trace, key)["time_ns"].to_list() == [99]
    beside = {
        key: [[BASE_NS, odd] for odd in ODD[key]],
        "gpu_states": [[BASE_NS, [0, 1, 1, 1, 1, 1]]],
    }
    trace = load(write(tmp_path, event("user_annotation", "step"), kernel(), nsysflow=beside))
    assert getattr(trace, key).is_empty()
    assert not trace.gpu_states.is_empty()


@pytest.mark.parametrize("base_ns", [BASE_NS, 1 << 80, -1, "x", None])
def test_torch_profiler_has_them_beside_its_events(base_ns: Any, tmp_path: Path) -> None:
    path = write(
        tmp_path,
        event("user_annotation", "step"),
        kernel(correlation=1),
        nsysflow={
            "thread_cpu": [[BASE_NS + 2_000, OF_THREAD]],
            "process_cpu": [[BASE_NS + 3_000, OF_PROCESS]],
        },
        baseTimeNanoseconds=base_ns,
    )
    trace = load(path)
    shift_ns = 0 if base_ns == BASE_NS else BASE_NS
    pid = trace.ranges["process"][0]
    assert trace.thread_cpu.rows() == [(shift_ns + 2_000, pid | 1000, 5_000, 700)]
    assert trace.process_cpu.rows() == [(shift_ns + 3_000, pid, *OF_PROCESS)]
