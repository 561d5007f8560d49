"""Small torch.profiler traces, written by hand."""

import json
from pathlib import Path
from typing import Any, Final

import nsysflow
from tests.agreement import assert_agrees
from tests.oracle.model import from_trace
from tests.oracle.report import Report
from tests.reports import DATA

PID: Final = 813
REAL: Final = DATA / "h200-kineto.pt.trace.json.gz"
SIZES: Final[dict[str, Any]] = {
    "grid": [1, 1, 1],
    "block": [32, 1, 1],
    "registers per thread": 8,
    "shared memory": 0,
}
"""What torch says of a kernel's launch."""


def event(cat: str, name: str, ts: object = 1, dur: object = 2, **more: object) -> dict[str, Any]:
    """An event with a duration, on the main thread."""
    of = {"ph": "X", "cat": cat, "name": name, "pid": PID, "tid": PID}
    return {**of, "ts": ts, "dur": dur, **more}


def call(
    ts: int, number: int, name: str = "cudaLaunchKernel", dur: int = 1, **more: object
) -> dict[str, Any]:
    """A call; `number` is its correlation id."""
    return event("cuda_runtime", name, ts, dur, args={"correlation": number}, **more)


def kernel(ts: int = 1, dur: int = 2, name: str = "k", **args: object) -> dict[str, Any]:
    """A kernel on GPU 0."""
    return event("kernel", name, ts, dur, pid=0, tid=7, args={"device": 0, "stream": 7, **args})


def function(name: str, ts: int, dur: int, **more: object) -> dict[str, Any]:
    """A call of a Python function."""
    return event("python_function", name, ts, dur, **more)


def write(folder: Path, *events: object, **document: object) -> Path:
    """Write a trace of `events` and return its path."""
    path = folder / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, **document, "traceEvents": events}))
    return path


def agreed(trace: nsysflow.Trace) -> nsysflow.Analysis:
    """The analysis of a trace, of which every table is the oracle's."""
    analysis = nsysflow.analyze(trace)
    assert_agrees(analysis, Report(from_trace(trace)))
    return analysis
