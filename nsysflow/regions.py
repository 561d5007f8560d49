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


class _Range:
    """One range that is open.

    Attributes:
        of: whose range it is.
        close: closes it, on its own thread alone.
        ended: whether another thread said so, which may not close it.
    """

    __slots__ = ("close", "ended", "of")

    def __init__(self, of: "region", close: Callable[[], object]) -> None:
        self.of = of
        self.close = close
        self.ended = False


class _Open(threading.local):
    """The ranges open on this thread, innermost last."""

    def __init__(self) -> None:
        self.ranges: list[_Range] = []


_OPEN: Final = _Open()
_recorder: Recorder | None = None
_out_of_turn_said = False


class region:
    """A named range: `with region("forward"):`, or `@region("loss")` on a function.

    It belongs to the thread that enters it, closes on exceptions too, and may be entered again
    while it is open. Left on another thread, as in a generator that is resumed there, it goes on
    until its own thread next enters or leaves a range. With no profiler attached it does nothing,
    for less than 1 us, and a decorated function is the function itself.

    On a coroutine function it covers the waits too, and ranges of coroutines that take turns on one
    thread are not told apart. On a generator it covers what the generator does between two `yield`.
    """

    __slots__ = ("_latest", "_name", "_payload")

    _latest: _Range | None
    """The range opened last, while it is open; not set without a profiler, which costs time."""

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
            here = _OPEN.ranges
            if here and here[-1].ended:
                _close_ended(here)
            self._latest = _Range(self, _opened(self._name, self._payload))
            here.append(self._latest)

    def __exit__(self, *_raised: object) -> None:
        if recorders.COLLECTOR_HERE is not None:
            here = _OPEN.ranges
            if here and here[-1].of is self:
                self._latest = None  # else a range and its region keep each other in memory
                here.pop().close()
            else:
                self._close_out_of_turn(here)
            if here and here[-1].ended:
                _close_ended(here)

    def _close_out_of_turn(self, here: list[_Range]) -> None:
        for index in range(len(here) - 1, -1, -1):
            if here[index].of is self:
                _say_out_of_turn(self._name, here[-1].of._name)
                self._latest = None
                here.pop(index).close()
                return
        # another thread opened it, and only that one can close it
        if self._latest is not None:
            self._latest.ended = True

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


def _close_ended(here: list[_Range]) -> None:
    """Close what other threads ended, as far as nothing is open in it."""
    while here and here[-1].ended:
        here.pop().close()


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


def _say_out_of_turn(outer: str, inner: str) -> None:
    """Once, on stderr."""
    global _out_of_turn_said
    if not _out_of_turn_said:
        _out_of_turn_said = True
        sys.stderr.write(
            f"nsysflow: the range '{outer}' ended before '{inner}', which was opened inside it, so"
            " their times in the report are wrong. Call no next() on steps inside a region, and put"
            " no region around what other coroutines or generators interrupt\n"
        )


def _refuse(payload: object) -> NoReturn:
    msg = f"a range's payload is an int of at most 64 bits, or None, and not {payload!r}"
    raise (ValueError if type(payload) is int else TypeError)(msg)


def _nothing() -> None:
    """Closes what was not opened."""
