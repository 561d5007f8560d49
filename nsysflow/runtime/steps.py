"""`nsysflow.steps`: the steps of a program, the captured window, and how long they take outside
it.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import count
from types import TracebackType
from typing import Any, Final, TypeVar

from nsysflow.runtime import protocol
from nsysflow.runtime.bound import note_step
from nsysflow.runtime.captures import ProfilerCapture, WindowMark, new_capture, synchronize
from nsysflow.runtime.cpu import READER
from nsysflow.runtime.gpu_states import SAMPLER
from nsysflow.runtime.process import (
    THIS_PROCESS,
    save_status,
    save_status_at_exit,
    save_status_once,
)
from nsysflow.runtime.protocol import CAPTURE, PLAIN, Collector, Window
from nsysflow.runtime.regions import Region, region

# reentrant: a garbage collection under the lock may end another loop, which comes here too
_LOCK: Final = threading.RLock()
_running: tuple[ProfilerCapture, int] | None = None
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


AT_STEP: Final[list[Callable[[], object]]] = []
"""What looks at the first steps of a program: called with each one."""


def count_step() -> None:
    """Count a step that has its batch and begins."""
    note_step()
    READER.at_step()
    with _LOCK:
        THIS_PROCESS.steps += 1
        if _running is not None:
            THIS_PROCESS.captured += 1
    for look in AT_STEP:
        look()


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


class Pace:
    """One loop's part in the window: it times the warm-up, opens and closes."""

    def __init__(self, window: Window, collector: Collector, *, asked: bool) -> None:
        self._window = window
        self._collector = collector
        self._asked = asked
        self._warm: tuple[int, int] | None = None
        """When this loop's warm-up began (wall clock), and at which step."""

    @property
    def due(self) -> bool:
        """Whether the next step is the first of the window."""
        first = self._window.wait + self._window.warmup
        return THIS_PROCESS.window == "never" and THIS_PROCESS.steps >= first

    @property
    def over(self) -> bool:
        """Whether nothing more will be recorded."""
        return THIS_PROCESS.window == "closed" and (self._asked or self._collector == "kineto")

    def __enter__(self) -> Pace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if kind is None:  # on an exception the last step was not done
            self._end_warmup()
        self._close_if_done()

    def between_steps(self) -> None:
        """Start or end the warm-up, or close the window, before the next step."""
        if self.due:
            self._end_warmup()
        elif THIS_PROCESS.window == "never":
            self._begin_warmup()
        self._close_if_done()

    def open(self) -> None:
        """Open the window, with a mark that describes it."""
        about: WindowMark = {
            "capture": str(self._window),
            "unprofiled_step_ns": THIS_PROCESS.unprofiled_step_ns,
        }
        if THIS_PROCESS.flops is not None:
            about["flops"] = THIS_PROCESS.flops
        open_window(self._collector, about if self._asked else None)

    def _close_if_done(self) -> None:
        if THIS_PROCESS.captured >= self._window.active:
            close_window()

    def _begin_warmup(self) -> None:
        # unless `profile` asked for a window, the whole run may be recorded: nothing is before one
        if self._asked and self._warm is None and THIS_PROCESS.steps >= self._window.wait:
            synchronize()
            self._warm = time.perf_counter_ns(), THIS_PROCESS.steps

    def _end_warmup(self) -> None:
        """Add the time of this loop's warm-up steps to that of earlier loops."""
        if self._warm is None:
            return
        synchronize()
        began_ns, first = self._warm
        self._warm = None
        state = THIS_PROCESS
        state.warmup_ns += time.perf_counter_ns() - began_ns
        state.warmup_steps += state.steps - first
        if state.warmup_steps:
            state.unprofiled_step_ns = round(state.warmup_ns / state.warmup_steps)


Batch = TypeVar("Batch")

_END: Final[Any] = object()


def steps(
    iterable: Iterable[Batch], *, wait: int = 3, warmup: int = 2, active: int = 5
) -> Iterator[Batch]:
    """Loop over `iterable`, marking each step and capturing the active ones.

    A step is fetching a batch and the loop's body. `wait` and `warmup` steps pass, then the capture
    window opens for `active` steps, once in a process: a second loop continues the count of the
    first, and a window that is open stays open between the two. It closes after the last active
    step, or when the program ends. `nsysflow profile --capture` overrides the three numbers; after
    its window, looping costs nothing extra. Without a profiler this is `iter(iterable)`.

    A step is marked, and the window opened, only when there is a batch. An iterable without a
    length must be asked for its batch first: then `data` lies before each step and the window.

        for batch in steps(loader, wait=3, warmup=2, active=5):
            train(batch)

    Raises:
        ValueError: a number is negative, or no step is active.
    """
    if PLAIN in os.environ:
        THIS_PROCESS.looped = True
        return _counted(iterable)
    asked = os.environ.get(CAPTURE)
    window = Window(wait=wait, warmup=warmup, active=active)
    if protocol.COLLECTOR_HERE is None:
        return iter(iterable)
    save_status_at_exit()
    save_status_once()
    SAMPLER.prepare()
    THIS_PROCESS.looped = True
    pace = Pace(
        Window.parse(asked) if asked else window, protocol.COLLECTOR_HERE, asked=bool(asked)
    )
    return _marked(iterable, pace)


def _counted(iterable: Iterable[Batch]) -> Iterator[Batch]:
    for batch in iterable:
        count_step()
        yield batch


def _marked(iterable: Iterable[Batch], pace: Pace) -> Iterator[Batch]:
    iterator = iter(iterable)
    length = _length(iterable)
    with pace:
        for taken in count():
            if taken == length:
                break
            pace.between_steps()
            if pace.over:
                break
            batch = _END
            if length is None and (batch := _fetch(iterator)) is _END:
                return
            if pace.due:
                pace.open()
            with region(Region.STEP, THIS_PROCESS.steps):
                if batch is _END and (batch := _fetch(iterator)) is _END:
                    return
                count_step()
                yield batch
    yield from iterator


def _fetch(iterator: Iterator[Any]) -> Any:
    """The next batch, or `_END`."""
    with region(Region.DATA):
        return next(iterator, _END)


def _length(iterable: Iterable[object]) -> int | None:
    """The number of steps, if the iterable knows it."""
    try:
        return len(iterable)  # type: ignore[arg-type]
    # this runs the loader's code: a missing sampler, 10**30 batches, "unknown until the first
    # epoch". The program did not ask for the length, so no error of it may reach the program
    except Exception:
        return None
