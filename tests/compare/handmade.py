"""Captures made by hand: rows in, a capture whose steps are their sums out; and budgets, judged."""

from typing import Any

from nsysflow.compare.budgets import budget
from nsysflow.compare.captures import Capture, Row, Track
from nsysflow.compare.judging import Culprit, Judgement, Measured, Verdict

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


LINE = Culprit(source="train.py:42 in step", what="waiting in a sync, train.py:42 in step: 9 us")


def measured(text: str, verdict: Verdict, value: float, most: float, **other: Any) -> Judgement:
    """A figure in ns, or as `other` says."""
    about: dict[str, Any] = {
        "unit": "ns",
        "low": value,
        "high": value,
        "factor": None,
        "counted": "step",
        "needed": None,
        **other,
    }
    culprits = (LINE,) if verdict == "crossed" else ()
    return Judgement(
        budget=budget(text),
        verdict=verdict,
        measured=Measured(value=value, most=most, **about),
        culprits=culprits,
    )


CROSSED = measured("step_ms<=5", "crossed", 5.6e6, 5e6, low=5.5e6, high=5.7e6)
NOISY = measured("idle_pct<5", "too noisy", 4.9, 5, unit="pct", low=None, high=None, needed=120)
WITHIN = measured("kernel:gemm.count<=8", "within", 8, 8, unit="count")
FOUND = Judgement(
    budget=budget("finding:sync-in-loop=none"), verdict="crossed", culprits=(LINE,), found_in=1
)
ALL = [CROSSED, FOUND, NOISY, WITHIN]
