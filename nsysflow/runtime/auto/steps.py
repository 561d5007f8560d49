"""Where automatic steps begin and end, and what records automatic ranges."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from nsysflow.runtime.process import (
    THIS_PROCESS,
    is_loader_worker,
    save_status_at_exit,
    save_status_once,
)
from nsysflow.runtime.protocol import AUTO_CALL, AUTO_DOMAIN, CAPTURE, STEP, Collector, Window
from nsysflow.runtime.recorders import Recorder, find_recorder, nothing
from nsysflow.runtime.regions import captures_graph, noted
from nsysflow.runtime.steps import Pace, count_step


class Recording:
    """Opens ranges in the domain of automatic ones. All of them are opened here."""

    def __init__(self, collector: Collector | None) -> None:
        """Nothing is recorded without a collector."""
        self._collector = collector
        self._recorder: Recorder | None = None

    def open(self, name: str) -> Callable[[], object]:
        """Open a range on this thread; calling what is returned closes it."""
        recorder = self._recorder or self._find()
        if recorder is None or THIS_PROCESS.recorded or is_loader_worker():
            return nothing
        THIS_PROCESS.ranges += 1
        return noted(name, AUTO_DOMAIN, recorder.open(name, None))

    def _find(self) -> Recorder | None:
        """The recorder; looked for again until there is one, as nvtx may be imported later."""
        save_status_at_exit()
        if self._collector is not None:
            self._recorder = find_recorder(self._collector, AUTO_DOMAIN)
        return self._recorder


class Steps:
    """The automatic steps of this process.

    Attributes:
        trains: whether an optimizer was made.
        training: whether the model that was called last is in training mode.
        learns: whether an optimizer has stepped, or such a model has got gradients.
    """

    def __init__(self, recording: Recording, collector: Collector | None) -> None:
        self.trains = False
        self.training = False
        self.learns = False
        self._recording = recording
        asked = os.environ.get(CAPTURE)
        self._pace = (
            Pace(Window.parse(asked), collector, asked=True) if asked and collector else None
        )
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
        self.learns = True
        leader = self._leader and self._leader()
        if leader is None:
            leader = optimizer
            self._leader = weakref.ref(optimizer)
        if leader is optimizer:
            self._end(STEP)

    def after_backward(self) -> None:
        """Gradients have come; without an optimizer, the program itself changes the weights."""
        self.learns = self.learns or self.training

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
