"""The capture window of this process: opened and closed once, by any of its loops."""

from __future__ import annotations

import atexit
import os
import threading
from functools import cache
from typing import Final

from nsysflow.runtime.captures import Capture, WindowMark, new_capture
from nsysflow.runtime.collectors import Collector
from nsysflow.runtime.this_process import THIS_PROCESS, save_status

# reentrant: a garbage collection under the lock may end another loop, which comes here too
_LOCK: Final = threading.RLock()
_running: tuple[Capture, int] | None = None
"""The capture that is running, and the process that started it; a forked process has a copy."""


def open_window(collector: Collector, about: WindowMark | None) -> None:
    """Start the capture, unless another thread already did."""
    global _running
    with _LOCK:
        if THIS_PROCESS.window != "never":
            return
        THIS_PROCESS.window = "open"
    capture = new_capture(collector)
    # a program that is killed inside the window writes no more; takes 1 ms, so before the capture
    save_status()
    capture.start(about)
    _running = capture, os.getpid()
    _stop_at_exit()


def count_step() -> None:
    """Count a step that has its batch and begins."""
    with _LOCK:
        THIS_PROCESS.steps += 1
        if _running is not None:
            THIS_PROCESS.captured += 1


def close_window() -> None:
    """Stop the capture if it runs, and save that at once: the program may be killed later."""
    if _stop():
        THIS_PROCESS.window = "closed"
        save_status()


def _stop() -> bool:
    """Stop this process's capture; False if none was running."""
    global _running
    with _LOCK:
        running, _running = _running, None
    if running is None or running[1] != os.getpid():
        return False
    running[0].stop()
    return True


@cache
def _stop_at_exit() -> None:
    # the status keeps `open`: the window's steps were not all done
    atexit.register(_stop)
