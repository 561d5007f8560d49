"""Named ranges of a program: `region`, and the one vocabulary of names.

Workloads write these names and the analysis reads them; indices go into the payload, so that a
name stands for one thing, however often it is done.
"""

import sys
import threading
from collections.abc import Callable
from enum import StrEnum
from functools import cache
from typing import Any, Final, NoReturn, TypeVar, cast

from nsysflow import handshake, recorders
from nsysflow.recorders import Collector, Recorder
from nsysflow.telling import RECORD, tell_at_exit
from nsysflow.wrapping import refuse_no_function, wrapped

Function = TypeVar("Function", bound=Callable[..., Any])


class Region(StrEnum):
    """The phases of a training step, in the order in which they begin."""

    STEP = handshake.STEP
    DATA = "data"
    H2D = "h2d"
    FORWARD = "forward"
    LOSS = "loss"
    BACKWARD = "backward"
    GRAD_CLIP = "grad_clip"
    OPTIMIZER = "optimizer"
    WEIGHT_SYNC = "weight_sync"
    METRICS = "metrics"


class _Open(threading.local):
    """What closes the ranges open on this thread, innermost last."""

    def __init__(self) -> None:
        self.closers: list[Callable[[], object]] = []


_OPEN: Final = _Open()
_recorder: Recorder | None = None


class region:
    """A named range: `with region("forward"):`, or `@region("loss")` on a function.

    It belongs to the thread that enters it, closes on exceptions too, and may be entered again
    while it is open. With no profiler attached it does nothing, for less than 1 us, and a decorated
    function is the function itself.

    On a coroutine function it covers the waits too, and ranges of coroutines that take turns on one
    thread are not told apart. On a generator it covers what the generator does between two `yield`.
    """

    __slots__ = ("_name", "_payload")

    def __init__(self, name: str, payload: int | None = None) -> None:
        """Name a range; nothing happens yet.

        Args:
            name: what the code inside does, the same every time; `Region` has the usual names.
            payload: a number that differs from time to time, such as the step's index.

        Raises:
            TypeError: the payload is no int.
            ValueError: it takes more than 64 bits.
        """
        if payload is not None and not (type(payload) is int and -(2**63) <= payload < 2**63):
            _refuse(payload)
        self._name = name
        self._payload = payload

    def __enter__(self) -> None:
        if recorders.COLLECTOR_HERE is not None:
            _OPEN.closers.append(_opened(self._name, self._payload))

    def __exit__(self, *_raised: object) -> None:
        if recorders.COLLECTOR_HERE is not None:
            _OPEN.closers.pop()()

    def __call__(self, function: Function) -> Function:
        refuse_no_function(function)
        if recorders.COLLECTOR_HERE is None:
            return function
        return cast("Function", wrapped(self, function))


def mark(text: str) -> None:
    """An instant in the report that says `text`; nothing without a profiler."""
    recorder = _recorder_here()
    if recorder is not None:
        recorder.mark(text)


def _opened(name: str, payload: int | None) -> Callable[[], object]:
    recorder = _recorder or _recorder_here()
    if recorder is None:
        return _nothing
    RECORD.ranges += 1
    return recorder.open(str(name), payload)


def _recorder_here() -> Recorder | None:
    """Who takes ranges; asked again until there is someone, since torch may be imported later."""
    global _recorder
    if _recorder is None and recorders.COLLECTOR_HERE is not None:
        tell_at_exit()
        _recorder = recorders.find_recorder(recorders.COLLECTOR_HERE)
        if _recorder is None:
            say_that_nothing_is_recorded(recorders.COLLECTOR_HERE)
    return _recorder


@cache
def say_that_nothing_is_recorded(collector: Collector) -> None:
    """Once, on stderr: what is missing here, and how to get it."""
    missing, package = (
        ("torch is missing", "torch")
        if collector == "kineto"
        else ("the nvtx package is missing, and no CUDA build of torch is loaded", "nvtx")
    )
    sys.stderr.write(
        "nsysflow: a profiler is attached, but nothing here can mark ranges for it:"
        f" {missing}. To have them:\n  pip install {package}\n"
    )


def _refuse(payload: object) -> NoReturn:
    msg = f"a range's payload is an int of at most 64 bits, or None, and not {payload!r}"
    raise (ValueError if type(payload) is int else TypeError)(msg)


def _nothing() -> None:
    """Closes what was not opened."""
