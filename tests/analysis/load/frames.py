"""The frames that a loader fills in, and NVTX events that carry JSON."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from nsysflow.analysis import schema
from nsysflow.analysis.load import load
from nsysflow.analysis.load.pack import pack
from nsysflow.analysis.trace import Trace
from tests.exports import thread

NAMES: Final = (
    *("ops", "shapes", "copy_details", "calls", "ranges", "overhead", "event_records", "waits"),
    *(
        "operators",
        "operator_shapes",
        "threads",
        "devices",
        "diagnostics",
        "backtraces",
        "samples",
        "gil",
    ),
    *("running", "frames", "gpu_samples", "captures"),
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
