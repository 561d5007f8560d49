"""Waits that torch.profiler records: who waited for whom."""

from pathlib import Path
from typing import Any

import nsysflow
from nsysflow.analysis.load import load
from tests.agreement import assert_agrees
from tests.analysis.load.kineto.traces import event, kernel, write
from tests.oracle.model import from_trace
from tests.oracle.report import Report


def call(name: str, ts: int, number: int) -> dict[str, Any]:
    return event("cuda_runtime", name, ts, 1, args={"correlation": number})


def waited(number: int, **args: int) -> dict[str, Any]:
    of = {"device": 0, "stream": -1, "correlation": number, **args}
    return event("cuda_sync", "Event Sync", pid=0, tid=-1, args=of)


def on(stream: int, ts: int, dur: int, number: int) -> dict[str, Any]:
    launched = {"grid": [1, 1, 1], "block": [32, 1, 1], "registers per thread": 8}
    args = {"correlation": number, "stream": stream, "shared memory": 0, **launched}
    return kernel(**args) | {"ts": ts, "dur": dur, "name": f"k{number}"}


RECORDED = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 3}
TRACE = (
    call("cudaLaunchKernel", 0, 1),
    call("cudaLaunchKernel", 2, 2),
    call("cudaEventRecord", 4, 3),
    call("cudaStreamWaitEvent", 6, 4),
    call("cudaLaunchKernel", 8, 5),
    call("cudaEventSynchronize", 10, 6),
    call("cudaStreamWaitEvent", 12, 7),
    call("cudaDeviceSynchronize", 50, 8),
    on(7, 10, 5, 1),
    on(7, 15, 10, 2),
    on(20, 26, 4, 5),
    waited(4, stream=20, **RECORDED),
    waited(6, **RECORDED),
    waited(7, stream=20, wait_on_stream=7),
    waited(8, stream=(1 << 32) - 1),
)


def test_a_stream_waits_for_what_came_before_the_record(tmp_path: Path) -> None:
    trace = load(write(tmp_path, *TRACE))
    assert trace.event_records.drop("process").rows() == [(0, 3, 7, 3)]
    assert trace.waits.select("correlation", "stream", "record").rows() == [
        (4, 20, 3),
        (6, None, 3),
        (7, 20, None),
        (8, None, None),
    ]
    analysis = nsysflow.analyze(trace)
    waits = analysis.timeline.event_waits
    assert waits.missing == 1
    names = analysis.timeline.events.ops["name"].cast(str)
    edges = [(names[op], names[source]) for op, source in waits.edges.rows()]
    assert edges == [("k5", "k2")]
    assert_agrees(analysis, Report(from_trace(trace)))


def test_odd_waits_do_not_stop_a_trace(tmp_path: Path) -> None:
    odd = (event("cuda_sync", "x"), event("cuda_sync", "x", args={"stream": "7", "record": []}))
    assert load(write(tmp_path, *TRACE, *odd)).waits.height == 6
