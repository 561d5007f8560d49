"""Functions with an automatic range around them, where automatic steps begin and end, and what
records both.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from functools import wraps
from types import FunctionType, ModuleType
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


Function = Callable[..., Any]


class Here(threading.local):
    """What this thread is doing. A new thread starts with these defaults.

    Attributes:
        busy: in a range whose modules need none of their own.
        compiling: in Dynamo or Inductor, which run parts of the program to look at them.
        tokens: in `generate`: what closes the range of the newest token.
    """

    busy = False
    compiling = False
    tokens: list[Callable[[], object]] | None = None


class Ranges:
    """Opens automatic ranges, and puts them around functions.

    Attributes:
        here: what this thread is in.
        steps: of this process.
        is_compiling: whether Dynamo looks at this call. Dynamo knows this function and takes it for
            `True`, so nothing of ours gets into a graph.
    """

    def __init__(self, torch: ModuleType, collector: Collector | None) -> None:
        self._frames = torch._C._dynamo.eval_frame
        self._recording = Recording(collector)
        self.here = Here()
        self.steps = Steps(self._recording, collector)
        self.is_compiling: Callable[[], bool] = torch.compiler.is_dynamo_compiling
        self.hide(Ranges.apart)

    def open(self, name: str) -> Callable[[], object]:
        """Open a range on this thread; calling what is returned closes it."""
        close: Callable[[], object] = self.apart(self._open, name)
        return close

    def _open(self, name: str) -> Callable[[], object]:
        if self.here.compiling:
            return nothing
        self.steps.begin()
        return self._recording.open(name)

    def apart(self, function: Function, *args: object) -> Any:
        """Call a function of ours where Dynamo does not look at it.

        In what it runs uncompiled, it looks at each function that is called, and compiles it.
        """
        watched = self._frames.set_eval_frame(None)
        try:
            return function(*args)
        finally:
            self._frames.set_eval_frame(watched)

    def around(self, name: str, function: Function, *, busy: bool = False) -> Function:
        """`function` in a range; `busy` leaves out the ranges of modules in it."""
        is_compiling, here, apart = self.is_compiling, self.here, self.apart

        @wraps(function)
        def within(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or THIS_PROCESS.recorded:
                return function(*args, **kwargs)
            was_busy, here.busy = here.busy, busy or here.busy
            close = apart(self._open, name)
            try:
                return function(*args, **kwargs)
            finally:
                apart(close)
                here.busy = was_busy

        return self.hide(within)

    def put_around(self, owner: object, attribute: str, name: str, *, busy: bool = False) -> None:
        """Replace a function of a module or class by one in a range."""
        function = getattr(owner, attribute)
        setattr(owner, attribute, self.around(name, function, busy=busy))

    def hide(self, function: Function) -> Function:
        """Keep Dynamo from compiling a function that it meets as a frame of its own; what that
        calls is compiled as before.

        All modules share one `__call__`: without this, each compiled module would count as a
        recompile of it.
        """
        frames = self._frames
        code = function.__code__ if isinstance(function, FunctionType) else None
        if hasattr(frames, "skip_code"):  # before torch 2.8
            frames.skip_code(code)
        else:
            action = frames._FrameAction
            strategy = frames._FrameExecStrategy(action.SKIP, action.DEFAULT)
            frames.set_code_exec_strategy(code, strategy)
        return function
