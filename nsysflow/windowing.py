"""The window of this process: one capture, whichever of its loops opens it and closes it."""

import atexit
import os
import threading
from functools import cache
from typing import Final

from nsysflow.capturing import Announcement, Capture, capture_with
from nsysflow.recorders import Collector
from nsysflow.telling import RECORD, tell_now

# a garbage collection inside may end another loop, which comes here again
_LOCK: Final = threading.RLock()
_started: tuple[Capture, int] | None = None
"""What records now, and the process that started it: a forked one has a copy."""


def open_window(collector: Collector, announcement: Announcement | None) -> None:
    """Start to capture, unless another thread was first."""
    global _started
    with _LOCK:
        if RECORD.window != "never":
            return
        RECORD.window = "open"
    capture = capture_with(collector)
    tell_now()  # a program that is killed inside says no more; takes 1 ms, so before the capture
    capture.start(announcement)
    _started = capture, os.getpid()
    _stop_at_exit()


def count_step() -> None:
    """A step has its batch and begins."""
    with _LOCK:
        RECORD.steps += 1
        if _started is not None:
            RECORD.captured += 1


def close_window() -> None:
    """End the capture if one goes on, and say so at once: the program may never end well."""
    if _stop():
        RECORD.window = "closed"
        tell_now()


def _stop() -> bool:
    """Whether there was a capture of this process to stop."""
    global _started
    with _LOCK:
        started, _started = _started, None
    if started is None or started[1] != os.getpid():
        return False
    started[0].stop()
    return True


@cache
def _stop_at_exit() -> None:
    # the window stays `open` in what is told: its steps were not done
    atexit.register(_stop)
