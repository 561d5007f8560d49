"""Ranges in which CUDA graphs are captured before the window opens.

Nothing is recorded then, but the window replays these graphs, and only the ranges of their capture
tell what they run. They are noted here, and marks in the window list them.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from nsysflow.runtime.protocol import CAPTURE, KEY
from nsysflow.runtime.this_process import THIS_PROCESS

_NOTED: Final[list[tuple[str, str | None, int, int, int]]] = []
"""Name, domain, start, end and thread id, on the clock of `time.monotonic_ns`."""

_AWAITS_WINDOW: Final = CAPTURE in os.environ
"""Else everything is recorded, or nothing, and asking CUDA would add a call to the report."""

_READINGS: Final = 5
"""A mark is recorded later than its clock was read: 1 us, the first one 100 us (an H200 machine,
2026-11). Of several, the analysis takes the smallest difference."""

_IN_A_MARK: Final = 100
"""nsys keeps the text of marks up to about 64 kB."""


def noted(name: str, domain: str | None, close: Callable[[], object]) -> Callable[[], object]:
    """What closes a range that was just opened, and notes it if it belongs to a capture."""
    if not _AWAITS_WINDOW or THIS_PROCESS.window != "never" or not captures_graph():
        return close
    begun_ns, thread = time.monotonic_ns(), threading.get_native_id()

    def note_and_close() -> None:
        _NOTED.append((name, domain, begun_ns, time.monotonic_ns(), thread))
        close()

    return note_and_close


def captures_graph() -> bool:
    """Whether what this thread launches is captured into a CUDA graph instead of run."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    capturing: bool = torch.cuda.is_current_stream_capturing()
    return capturing


def list_noted(mark: Callable[[str], None]) -> None:
    """Record marks that list the noted ranges, if there are any."""
    if _NOTED:
        firsts = range(0, len(_NOTED), _IN_A_MARK)
        lists = [json.dumps(_NOTED[first : first + _IN_A_MARK]) for first in firsts]
        for ranges in ["[]"] * _READINGS + lists:
            mark(f'{{"{KEY}": {{"graph_ranges": {ranges}, "clock_ns": {time.monotonic_ns()}}}}}')
