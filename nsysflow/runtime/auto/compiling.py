"""Dynamo and Inductor at work: `compile`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any, Final

from nsysflow.runtime.auto.ranges import Ranges
from nsysflow.runtime.inject.nsysflow_hook import when_imported

_RECORDING: Final = "CUDAGRAPH_RECORDING"
"""torch also calls back for this, when a step runs to record its CUDA graphs."""


def annotate(_torch: ModuleType, ranges: Ranges) -> None:
    """Open a range whenever torch starts to compile."""
    when_imported("torch._dynamo.callback", lambda callback: _listen(callback, ranges))


def _listen(callback: ModuleType, ranges: Ranges) -> None:
    # not by registering a callback: `torch._dynamo.reset` forgets those
    handler = callback.CompilationCallbackHandler
    started, ended = handler.run_start_callbacks, handler.run_end_callbacks
    here, opened = ranges.here, list[Callable[[], object]]()

    @wraps(started)
    def run_start_callbacks(self: object, *args: Any) -> None:
        started(self, *args)
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
