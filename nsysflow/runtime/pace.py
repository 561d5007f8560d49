"""How far the steps of this process are from the capture window, and what is due between two."""

from __future__ import annotations

import time
from types import TracebackType

from nsysflow.runtime.captures import WindowMark, synchronize
from nsysflow.runtime.collectors import Collector
from nsysflow.runtime.protocol import Window
from nsysflow.runtime.this_process import THIS_PROCESS
from nsysflow.runtime.window import close_window, open_window


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
        # unless `profile` asked for a window, the whole run may be recorded: no step is unprofiled
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
