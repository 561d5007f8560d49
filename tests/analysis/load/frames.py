"""The frames that a loader fills in, and NVTX events that carry JSON."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from nsysflow.analysis import schema
from nsysflow.analysis.load import load
from nsysflow.analysis.load.pack import pack
from nsysflow.analysis.trace import Trace
from tests.exports import Row, thread
from tests.oracle.export import read_export
from tests.oracle.model import from_trace

NAMES: Final = (
    *("ops", "shapes", "copy_details", "calls", "ranges", "overhead", "event_records", "waits"),
    *("operators", "operator_shapes", "threads", "devices", "diagnostics", "backtraces", "samples"),
    *("gil", "running", "frames", "gpu_samples", "captures", "failed_calls"),
)
FRAMES: Final = {name: getattr(schema, name.upper()) for name in NAMES}
"""The schema of each frame, by name."""


def assert_schemas(trace: Trace) -> None:
    for name, of in FRAMES.items():
        assert getattr(trace, name).schema == of, name


def loaded_and_packed(report: Path) -> Iterator[Trace]:
    """The trace of a report, and that of its packed copy."""
    yield load(report)
    packed = report.with_name("packed.sqlite")
    pack(report, packed)
    yield load(packed)


def assert_read(report: Path, **expected: Sequence[tuple[Any, ...]]) -> None:
    """A report and its packed copy have these rows of these frames, and the oracle reads the same,
    in any order."""
    plain = read_export(report)
    for trace in loaded_and_packed(report):
        found = from_trace(trace)
        for name, rows in expected.items():
            assert sorted(getattr(trace, name).rows(), key=repr) == sorted(rows, key=repr), name
            one, other = (sorted(getattr(of, name), key=repr) for of in (found, plain))
            assert one == other, name


def mark(**content: Any) -> str:
    """The text of a mark of ours."""
    return json.dumps({"nsysflow": content})


def event(text: str | None, tid: int = thread(), **columns: Any) -> dict[str, Any]:
    """A mark as an NVTX event."""
    return {"eventType": 34, "text": text, "globalTid": tid, "end": None, **columns}


GPU_1: Final = 0x1000100000001


def counters(names: dict[int, str], *values: tuple[int, int, Any]) -> dict[str, list[Row]]:
    """The tables of counters of GPU 1: names by metric id, and (timestamp, metric, value)."""
    keys = ("timestamp", "metricId", "value")
    return {
        "TARGET_INFO_GPU_METRICS": [
            {"typeId": GPU_1, "metricId": metric, "metricName": name}
            for metric, name in names.items()
        ],
        "GPU_METRICS": [{"typeId": GPU_1, **dict(zip(keys, of, strict=True))} for of in values],
    }


Frame = tuple[int, int, int]
"""Function, file and line of a stack's frame."""

KINDS: Final = {
    "backtrace": (1, "Python Backtrace on CUDA"),
    "sample": (3, "Python Periodic Sampling"),
}
DOMAINS: Final = {
    kind: {"eventType": 75, "text": name, "domainId": domain, "end": None}
    for kind, (domain, name) in KINDS.items()
}
"""The NVTX events that name the domains of Python stacks."""


def stack(kind: str, start: int, *frames: Frame, tid: int = thread()) -> dict[str, Any]:
    """An NVTX event of that kind with a stack, the innermost frame first."""
    domain, name = KINDS[kind]
    rows = [{"Function": f, "File": file, "Line": line} for f, file, line in frames]
    text = json.dumps({name: {"Thread state": "Running", "Frames": rows}})
    event = {"eventType": 34, "start": start, "end": None, "domainId": domain, "globalTid": tid}
    return {**event, "jsonText": text}
