"""What a window of steps says of itself (`nsysflow.steps`): one JSON object per process.

In an nsys report it is the text of an NVTX mark, in a Kineto trace a key beside `traceEvents`.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import polars as pl

from nsysflow.analysis import schema

KEY: Final = "nsysflow"

_WINDOW: Final = re.compile(r"\d{1,9}:\d{1,9}:\d{1,9}$")
_TOO_LONG_NS: Final = 1 << 63


def captures(marks: Iterable[tuple[int | None, str]]) -> pl.DataFrame:
    """`schema.CAPTURES` of (process, text of a mark), the first of each process; other marks are
    none of our business."""
    found: dict[int | None, dict[str, Any]] = {}
    for process, text in marks:
        about = about_capture(text)
        if about is not None:
            found.setdefault(process, about)
    rows = [(process, *about.values()) for process, about in found.items()]
    return pl.DataFrame(rows, schema=schema.CAPTURES, orient="row")


def about_capture(text: str) -> dict[str, Any] | None:
    """`capture` and `unprofiled_step_ns` of a mark's text; None where it is not ours."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return capture_in(document)


def capture_in(document: object) -> dict[str, Any] | None:
    """`capture` and `unprofiled_step_ns` of a JSON object that has our key; None of any other."""
    about = document.get(KEY) if isinstance(document, dict) else None
    if not isinstance(about, dict) or not _is_window(about.get("capture")):
        return None
    unprofiled_ns = about.get("unprofiled_step_ns")
    usable = type(unprofiled_ns) is int and 0 < unprofiled_ns < _TOO_LONG_NS
    return {
        "capture": about["capture"],
        "unprofiled_step_ns": unprofiled_ns if usable else None,
    }


def _is_window(capture: object) -> bool:
    return isinstance(capture, str) and _WINDOW.match(capture) is not None
