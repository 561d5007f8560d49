"""Captures made by hand: rows in, a capture whose steps are their sums out."""

from typing import Any

from nsysflow.compare.captures import Capture, Row, Track

GPU = "NVIDIA H200"


def row(*ns: int, **other: Any) -> Row:
    """A kernel that took so many ns of each step; idle time with `part="idle"`."""
    idle = other.get("part") == "idle"
    what: dict[str, Any] = {
        "part": "compute",
        "kind": "host" if idle else "matmul",
        "name": "" if idle else "gemm",
        "grid": None if idle else "8x1x1",
        "phase": "step/forward",
        "source": None,
        "via": None,
        "ns": ns,
        "duration_ns": ns,
        "count": [1 if each else 0 for each in ns],
        **other,
    }
    return Row(short_name=what["name"], **what)


def track(*rows: Row, **other: Any) -> Track:
    """One process on one GPU, of steps that consist of these rows."""
    duration_ns = [sum(each) for each in zip(*(one.ns for one in rows), strict=True)]
    about: dict[str, Any] = {
        "report": "run",
        "process": 1,
        "device": 0,
        "gpu": GPU,
        "step_name": "step",
        "unprofiled_step_ns": None,
        "steps": list(range(len(duration_ns))),
        "kinds": ["steady"] * len(duration_ns),
        **other,
    }
    return Track(duration_ns=duration_ns, rows=rows, **about)


def capture(*rows: Row, name: str = "run", **other: Any) -> Capture:
    """A capture of one process on one GPU."""
    of_capture = {key: other.pop(key) for key in ("unit", "invalid", "selection") if key in other}
    return Capture(name, [track(*rows, report=name, **other)], **of_capture)


def ranks(*tracks: Track, name: str = "run") -> Capture:
    """A capture of several ranks."""
    return Capture(name, tracks)
