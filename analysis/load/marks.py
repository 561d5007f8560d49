"""What a window of steps says of itself (`nsysflow.steps`), one JSON object per process: which
steps it holds, what one takes with no profiler, and what one computes.

In an nsys report it is the text of an NVTX mark, in a Kineto trace a key beside `traceEvents`.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.handshake import KEY
from nsysflow.peaks import UNITS

_WINDOW: Final = re.compile(r"\d{1,9}:\d{1,9}:\d{1,9}$")
_TOO_LONG_NS: Final = 1 << 63
_TOO_MANY: Final = 1 << 56
"""FLOPs of a phase: sums of 128 of them still fit 64 bits, and an H200 needs 70 s for so many."""


def captures(marks: Iterable[tuple[int | None, str]]) -> pl.DataFrame:
    """`schema.CAPTURES` of (process, text of a mark), the first of each process; other marks are
    none of our business."""
    found = first_of_each(marks)
    rows = [(process, about["capture"], about["unprofiled_step_ns"]) for process, about in found]
    return pl.DataFrame(rows, schema=schema.CAPTURES, orient="row")


def declared(marks: Iterable[tuple[int | None, str]]) -> pl.DataFrame:
    """`schema.FLOPS` of the same marks."""
    rows = [
        (process, phase, flops, about["flops"]["unit"])
        for process, about in first_of_each(marks)
        for phase, flops in about.get("flops", {}).get("phases", {}).items()
    ]
    return pl.DataFrame(rows, schema=schema.FLOPS, orient="row")


def first_of_each(
    marks: Iterable[tuple[int | None, str]],
) -> list[tuple[int | None, dict[str, Any]]]:
    """The processes with marks of ours, and what the first one of each says."""
    found: dict[int | None, dict[str, Any]] = {}
    for process, text in marks:
        about = about_capture(text)
        if about is not None:
            found.setdefault(process, about)
    return [*found.items()]


def about_capture(text: str) -> dict[str, Any] | None:
    """What a mark's text says, as `capture_in`; None where it is not ours."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return capture_in(document)


def capture_in(document: object) -> dict[str, Any] | None:
    """`capture`, `unprofiled_step_ns` and, where it is declared, `flops` (`unit`, and `phases` with
    what a step computes in each) of a JSON object that has our key; None of any other."""
    about = document.get(KEY) if isinstance(document, dict) else None
    if not isinstance(about, dict) or not _is_window(about.get("capture")):
        return None
    unprofiled_ns = about.get("unprofiled_step_ns")
    usable = type(unprofiled_ns) is int and 0 < unprofiled_ns < _TOO_LONG_NS
    flops = _flops_in(about.get("flops"))
    return {
        "capture": about["capture"],
        "unprofiled_step_ns": unprofiled_ns if usable else None,
        **({"flops": flops} if flops else {}),
    }


def _flops_in(found: object) -> dict[str, Any] | None:
    """A declaration of FLOPs that can be reckoned with."""
    if not isinstance(found, dict) or found.get("unit") not in UNITS:
        return None
    phases = found.get("phases")
    if not isinstance(phases, dict) or not phases:
        return None
    if not all(type(flops) is int and 0 < flops < _TOO_MANY for flops in phases.values()):
        return None
    return {"unit": found["unit"], "phases": phases}


def _is_window(capture: object) -> bool:
    return isinstance(capture, str) and _WINDOW.match(capture) is not None
