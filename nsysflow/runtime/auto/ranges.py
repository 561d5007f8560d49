"""Functions with an automatic range around them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from types import FunctionType, ModuleType
from typing import Any

from nsysflow.runtime.auto.steps import Recording, Steps
from nsysflow.runtime.process import THIS_PROCESS
from nsysflow.runtime.protocol import Collector
from nsysflow.runtime.recorders import nothing

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
