"""Small torch.profiler traces, written by hand."""

import json
from pathlib import Path
from typing import Any, Final

from tests.reports import DATA

PID: Final = 813
REAL: Final = DATA / "h200-kineto.pt.trace.json.gz"


def event(cat: str, name: str, ts: object = 1, dur: object = 2, **more: object) -> dict[str, Any]:
    """An event with a duration, on the main thread."""
    of = {"ph": "X", "cat": cat, "name": name, "pid": PID, "tid": PID}
    return {**of, "ts": ts, "dur": dur, **more}


def kernel(**args: object) -> dict[str, Any]:
    """A kernel on GPU 0."""
    return event("kernel", "k", pid=0, tid=7, args={"device": 0, "stream": 7, **args})


def write(folder: Path, *events: object, **document: object) -> Path:
    """Write a trace of `events` and return its path."""
    path = folder / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, **document, "traceEvents": events}))
    return path
