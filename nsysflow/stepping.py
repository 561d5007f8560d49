"""`steps`: a loop whose steps are marked, and some of them captured."""

import os
import time
from collections.abc import Iterable, Iterator
from itertools import count
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from nsysflow import recorders
from nsysflow.capturing import Capture, capture_with, synchronize
from nsysflow.handshake import CAPTURE, Window
from nsysflow.recorders import Collector
from nsysflow.regions import Region, region
from nsysflow.telling import RECORD, tell_at_exit, tell_now

Batch = TypeVar("Batch")

_END: Final[Any] = object()


def steps(
    iterable: Iterable[Batch], *, wait: int = 3, warmup: int = 2, active: int = 5
) -> Iterator[Batch]:
    """Go through `iterable`, marking each step and capturing the active ones.

    A step is fetching a batch and what the loop does with it. `wait` and `warmup` steps pass, then
    the capture window opens for `active` steps, once in a process: a second loop goes on counting
    where the first one ended. `nsysflow profile --capture` overrides the three numbers, and goes
    on without cost once its window has closed. With no profiler attached this is
    `iter(iterable)`.

        for batch in steps(loader, wait=3, warmup=2, active=5):
            train(batch)

    Raises:
        ValueError: a number is negative, or no step is active.
    """
    asked = os.environ.get(CAPTURE)
    window = Window(wait=wait, warmup=warmup, active=active)
    if recorders.COLLECTOR_HERE is None:
        return iter(iterable)
    tell_at_exit()
    capturing = _Capturing(
        Window.parse(asked) if asked else window, recorders.COLLECTOR_HERE, asked=bool(asked)
    )
    return _marked(iterable, capturing)


def _marked(iterable: Iterable[Batch], capturing: "_Capturing") -> Iterator[Batch]:
    iterator = iter(iterable)
    length = _length(iterable)
    with capturing:
        for taken in count():
            if taken == length:
                break
            capturing.next_step()
            if capturing.over:
                break
            with region(Region.STEP, RECORD.steps):
                with region(Region.DATA):
                    batch = next(iterator, _END)
                if batch is _END:
                    return
                RECORD.steps += 1
                yield batch
    yield from iterator


def _length(iterable: Iterable[object]) -> int | None:
    """How many steps there will be, if known: else a last range is opened with no step in it."""
    try:
        return len(iterable)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        return None


class _Capturing:
    """The window of one loop: times the warm-up, opens, closes."""

    def __init__(self, window: Window, collector: Collector, *, asked: bool) -> None:
        self._window = window
        self._collector = collector
        self._asked = asked
        self._warm: tuple[int, int] | None = None
        """When the warm-up began, by the wall clock, and at which step."""
        self._capture: Capture | None = None

    @property
    def over(self) -> bool:
        """Whether nothing of what follows will be recorded."""
        return RECORD.window == "closed" and (self._asked or self._collector == "kineto")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._capture is not None:
            self._close(self._capture)

    def next_step(self) -> None:
        """Between two steps: do what is due before the next one."""
        ahead = RECORD.steps - self._window.wait - self._window.warmup
        if RECORD.window == "never" and ahead >= 0:
            self._open()
        elif RECORD.window == "never" and ahead >= -self._window.warmup and self._warm is None:
            self._begin_warmup()
        elif self._capture is not None and ahead >= self._window.active:
            self._close(self._capture)

    def _begin_warmup(self) -> None:
        if self._asked:  # else the whole run may be recorded, and no step is without a profiler
            synchronize()
            self._warm = time.perf_counter_ns(), RECORD.steps

    def _open(self) -> None:
        if self._warm is not None:
            synchronize()
            began_ns, first = self._warm
            taken_ns = time.perf_counter_ns() - began_ns
            RECORD.unprofiled_step_ns = round(taken_ns / (RECORD.steps - first))
        announcement = {
            "capture": str(self._window),
            "unprofiled_step_ns": RECORD.unprofiled_step_ns,
        }
        capture = capture_with(self._collector)
        capture.start(announcement if self._asked else None)
        self._capture = capture
        RECORD.window = "open"

    def _close(self, capture: Capture) -> None:
        self._capture = None
        capture.stop()
        RECORD.window = "closed"
        tell_now()
