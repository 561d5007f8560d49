"""What torch.compile does: when it compiles, what it gives up on, and what it never compiles."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from nsysflow.runtime.auto.ranges import Ranges
from nsysflow.runtime.calls import calling_frames, line_of
from nsysflow.runtime.inject.nsysflow_hook import when_imported
from nsysflow.runtime.process import THIS_PROCESS
from nsysflow.runtime.products import PRODUCTS
from nsysflow.runtime.regions import note_given_up, note_never_compiled
from nsysflow.runtime.steps import AT_STEP

_RECORDING: Final = "CUDAGRAPH_RECORDING"
"""torch also calls back for this, when a step runs to record its CUDA graphs."""


def annotate_compiling(torch: ModuleType, ranges: Ranges) -> None:
    """Open a range whenever torch starts to compile, and note what it gives up on, and what it is
    given and never compiles."""
    never = _NeverCompiled()
    vars(torch)["compile"] = ranges.hide(never.asking(torch.compile))
    AT_STEP.append(never.at_step)
    when_imported("torch._dynamo.callback", lambda callback: _listen(callback, ranges, never))
    logging.getLogger("torch._dynamo.convert_frame").addFilter(note_given_up)


_LAST_STEP: Final = 4
"""What a loop calls it has called by then."""

_OF_LIBRARIES: Final = ("site-packages", "dist-packages")
"""Parts of paths: libraries compile functions that a program need not call."""


class _NeverCompiled:
    """Lines of the program that call torch.compile, until something is compiled.

    What it returns may be dropped, or called past: `model.compile()` changes `model(x)`, and not
    `model.forward(x)`.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self.over = False

    def asking(self, compile_: Callable[..., Any]) -> Callable[..., Any]:
        """torch.compile, whose calls are noted."""

        @wraps(compile_)
        def compile(*args: Any, **kwargs: Any) -> Any:
            if not kwargs.get("disable"):
                PRODUCTS.stop()
            if not (self.over or kwargs.get("disable")):
                self._lines.append(_line_of_program())
            return compile_(*args, **kwargs)

        return compile

    def at_step(self) -> None:
        """Say so if nothing was compiled in the first steps."""
        if self.over or THIS_PROCESS.steps < _LAST_STEP:
            return
        self.over = True
        lines = dict.fromkeys(line for line in self._lines if line)
        if lines and not _is_disabled():
            note_never_compiled([*lines])


def _is_disabled() -> bool:
    """Whether the program runs with torch.compile switched off."""
    config = sys.modules.get("torch._dynamo.config")
    return bool(getattr(config, "disable", False))


def _line_of_program() -> str:
    """The line that calls torch.compile, as `train.py:12`; empty if a library does."""
    frame = next(calling_frames(), None)
    if frame is None or any(part in _OF_LIBRARIES for part in Path(frame.f_code.co_filename).parts):
        return ""
    return line_of(frame)


def _listen(callback: ModuleType, ranges: Ranges, never: _NeverCompiled) -> None:
    # not by registering a callback: `torch._dynamo.reset` forgets those
    handler = callback.CompilationCallbackHandler
    started, ended = handler.run_start_callbacks, handler.run_end_callbacks
    here, opened = ranges.here, list[Callable[[], object]]()

    @wraps(started)
    def run_start_callbacks(self: object, *args: Any) -> None:
        started(self, *args)
        never.over = True
        PRODUCTS.stop()
        if not _records(args):
            opened.append(ranges.open("compile"))
            here.compiling = True

    @wraps(ended)
    def run_end_callbacks(self: object, *args: Any) -> None:
        if not _records(args) and opened:
            here.compiling = False
            opened.pop()()
        ended(self, *args)

    handler.run_start_callbacks = run_start_callbacks
    handler.run_end_callbacks = run_end_callbacks


def _records(args: tuple[Any, ...]) -> bool:
    """Whether torch called back for another reason; before 2.8 it gives no reason."""
    trigger = getattr(args[0], "callback_trigger", None) if args else None
    return getattr(trigger, "name", None) == _RECORDING
