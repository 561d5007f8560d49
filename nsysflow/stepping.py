"""`steps`: a loop whose steps are marked, and some of them captured."""

import os
import time
from collections.abc import Iterable, Iterator
from itertools import count
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from nsysflow import recorders
from nsysflow.capturing import Announcement, synchronize
from nsysflow.handshake import CAPTURE, Window
from nsysflow.recorders import Collector
from nsysflow.regions import Region, region
from nsysflow.telling import RECORD, tell_at_exit, tell_at_first_loop
from nsysflow.windowing import close_window, count_step, open_window

Batch = TypeVar("Batch")

_END: Final[Any] = object()


def steps(
    iterable: Iterable[Batch], *, wait: int = 3, warmup: int = 2, active: int = 5
) -> Iterator[Batch]:
    """Go through `iterable`, marking each step and capturing the active ones.

    A step is fetching a batch and what the loop does with it. `wait` and `warmup` steps pass, then
    the capture window opens for `active` steps, once in a process: a second loop goes on counting
    where the first one ended, in the window too, which stays open between the two. It closes after
    the last active step, or when the program ends. `nsysflow profile --capture` overrides the three
    numbers, and goes on without cost once its window has closed. With no profiler attached this is
    `iter(iterable)`.

    Only a step that comes is marked, and opens the window. An iterable without a length is asked
    for its batch before that: `data` then lies before each step, and before the window.

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
    tell_at_first_loop()
    loop = _Loop(
        Window.parse(asked) if asked else window, recorders.COLLECTOR_HERE, asked=bool(asked)
    )
    return _marked(iterable, loop)


def _marked(iterable: Iterable[Batch], loop: "_Loop") -> Iterator[Batch]:
    iterator = iter(iterable)
    length = _length(iterable)
    with loop:
        for taken in count():
            if taken == length:
                break
            loop.between_steps()
            if loop.over:
                break
            batch = _END
            if length is None and (batch := _fetch(iterator)) is _END:
                return
            if loop.due:
                loop.open()
            with region(Region.STEP, RECORD.steps):
                if batch is _END and (batch := _fetch(iterator)) is _END:
                    return
                count_step()
                yield batch
    yield from iterator


def _fetch(iterator: Iterator[Any]) -> Any:  # noqa: ANN401
    """The next batch, or `_END`."""
    with region(Region.DATA):
        return next(iterator, _END)


def _length(iterable: Iterable[object]) -> int | None:
    """How many steps there will be, if known."""
    try:
        return len(iterable)  # type: ignore[arg-type]
    # a loader's own code: a sampler that is not there, 10**30 batches, "unknown until the first
    # epoch". The program never asked, so whatever it raises is none of its errors
    except Exception:
        return None


class _Loop:
    """What one loop does for the window: times the warm-up, opens, closes."""

    def __init__(self, window: Window, collector: Collector, *, asked: bool) -> None:
        self._window = window
        self._collector = collector
        self._asked = asked
        self._warm: tuple[int, int] | None = None
        """When the warm-up began here, by the wall clock, and at which step."""

    @property
    def due(self) -> bool:
        """Whether the next step is the first of the window."""
        first = self._window.wait + self._window.warmup
        return RECORD.window == "never" and RECORD.steps >= first

    @property
    def over(self) -> bool:
        """Whether nothing of what follows will be recorded."""
        return RECORD.window == "closed" and (self._asked or self._collector == "kineto")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if kind is None:  # else the last step was not done
            self._end_warmup()
        self._close_if_done()

    def between_steps(self) -> None:
        """Do what is due before the next step; opening comes later."""
        if self.due:
            self._end_warmup()
        elif RECORD.window == "never":
            self._begin_warmup()
        self._close_if_done()

    def open(self) -> None:
        """Open the window, and say in it what is known."""
        announcement: Announcement = {
            "capture": str(self._window),
            "unprofiled_step_ns": RECORD.unprofiled_step_ns,
        }
        if RECORD.flops is not None:
            announcement["flops"] = RECORD.flops
        open_window(self._collector, announcement if self._asked else None)

    def _close_if_done(self) -> None:
        if RECORD.captured >= self._window.active:
            close_window()

    def _begin_warmup(self) -> None:
        # the whole run may be recorded unless we asked: no step is without a profiler then
        if self._asked and self._warm is None and RECORD.steps >= self._window.wait:
            synchronize()
            self._warm = time.perf_counter_ns(), RECORD.steps

    def _end_warmup(self) -> None:
        """Add what this loop spent in warm-up steps to what others did."""
        if self._warm is None:
            return
        synchronize()
        began_ns, first = self._warm
        self._warm = None
        RECORD.warmup_ns += time.perf_counter_ns() - began_ns
        RECORD.warmup_steps += RECORD.steps - first
        if RECORD.warmup_steps:
            RECORD.unprofiled_step_ns = round(RECORD.warmup_ns / RECORD.warmup_steps)
