"""Where automatic steps begin and end, and what the capture window makes of them.

An instant is recorded at each border: the first one begins a step, every other ends one. A step
goes from the end of an optimizer's step to the end of its next one. In a process that has made no
optimizer so far, a call of the outermost module is a step, with instants of another name.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from nsysflow.runtime.auto.recording import Recording
from nsysflow.runtime.collectors import Collector
from nsysflow.runtime.graph_ranges import captures_graph
from nsysflow.runtime.pace import Pace
from nsysflow.runtime.protocol import AUTO_CALL, CAPTURE, STEP, Window
from nsysflow.runtime.this_process import (
    THIS_PROCESS,
    is_loader_worker,
    save_status_at_exit,
    save_status_once,
)
from nsysflow.runtime.window import count_step


class Steps:
    """The automatic steps of this process.

    Attributes:
        trains: whether an optimizer was made.
        stepped: whether an optimizer has stepped.
    """

    def __init__(self, recording: Recording, collector: Collector) -> None:
        self.trains = False
        self.stepped = False
        self._recording = recording
        asked = os.environ.get(CAPTURE)
        self._pace = Pace(Window.parse(asked), collector, asked=True) if asked else None
        self._begun: str | None = None
        self._leader: weakref.ref[Any] | None = None
        self._calls: dict[int, int] = {}
        self._most_calls = 0
        self._lock = threading.RLock()

    def begin(self) -> None:
        """The first range of a process that trains: its first step begins here."""
        if self.trains and self._begun != STEP:
            self._begin(STEP)

    def before_call(self) -> None:
        """A model is about to be called: without optimizers, the first step begins here."""
        if not self.trains and self._begun is None:
            self._begin(AUTO_CALL)

    def after_optimizer(self, optimizer: object) -> None:
        """An optimizer has stepped: a step ends if it is the one that stepped first.

        Once that one is gone, the next that steps takes its place.
        """
        self.stepped = True
        leader = self._leader and self._leader()
        if leader is None:
            leader = optimizer
            self._leader = weakref.ref(optimizer)
        if leader is optimizer:
            self._end(STEP)

    def after_call(self, module: object) -> None:
        """A model was called: without optimizers, a step ends if no other was called as often.

        So of several models that take turns, the first one makes the steps.
        """
        if not self.trains:
            calls = self._calls[id(module)] = self._calls.get(id(module), 0) + 1
            if calls > self._most_calls:
                self._most_calls = calls
                self._end(AUTO_CALL)

    def _begin(self, name: str) -> None:
        if not is_loader_worker():
            save_status_at_exit()
            save_status_once()
            self._begun = name
            self._border(name, ended=False)

    def _end(self, name: str) -> None:
        if not is_loader_worker():
            self._border(name, ended=True)

    def _border(self, name: str, *, ended: bool) -> None:
        if THIS_PROCESS.looped or captures_graph():
            return
        with self._lock:
            self._recording.open(name)()
            if ended:
                count_step()
            if self._pace is not None and not self._pace.over:
                self._pace.between_steps()
                if self._pace.due:
                    self._pace.open()
                    self._recording.open(name)()
