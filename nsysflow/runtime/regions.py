"""NVTX ranges and marks of a profiled program, also ranges in which CUDA graphs are captured."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, Union, cast

from nsysflow.runtime import protocol, recorders
from nsysflow.runtime.process import THIS_PROCESS, save_status_at_exit
from nsysflow.runtime.protocol import (
    CAPTURE,
    KEY,
    MASKED_ROWS,
    MERGED_ADAPTERS,
    PADDED_INPUT,
    PRODUCT_ORDER,
    REPEATED_CALLS,
    UNCHANGED_CALLS,
    UNUSED_GRADIENTS,
    WORKER_CODE,
    ZEROS_IN_PRODUCTS,
    Collector,
)
from nsysflow.runtime.recorders import Recorder, nothing
from nsysflow.runtime.wrapping import require_function, wrapped

if TYPE_CHECKING:
    import logging

_NOTED: Final[list[tuple[str, str | None, int, int, int]]] = []
"""Name, domain, start, end and thread id, on the clock of `time.monotonic_ns`."""

_AWAITS_WINDOW: Final = CAPTURE in os.environ
"""Else everything is recorded, or nothing, and asking CUDA would add a call to the report."""

CLOCK_READINGS: Final = 5
"""A mark is recorded later than its clock was read: 1 us, the first one 100 us (an H200 machine,
2026-11). Of several, the analysis takes the smallest difference."""

_IN_A_MARK: Final = 100
"""nsys keeps the text of marks up to about 64 kB."""


def noted(name: str, domain: str | None, close: Callable[[], object]) -> Callable[[], object]:
    """What closes a range that was just opened, and notes it if it belongs to a capture."""
    if not _AWAITS_WINDOW or THIS_PROCESS.window != "never" or not captures_graph():
        return close
    begun_ns, thread = time.monotonic_ns(), threading.get_native_id()

    def note_and_close() -> None:
        _NOTED.append((name, domain, begun_ns, time.monotonic_ns(), thread))
        close()

    return note_and_close


def captures_graph() -> bool:
    """Whether what this thread launches is captured into a CUDA graph instead of run."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    capturing: bool = torch.cuda.is_current_stream_capturing()
    return capturing


_BEGIN: Final = "torch._dynamo hit config."
_LOGGED: Final = re.compile(
    rf"{re.escape(_BEGIN)}\w+ \(\d+\)"
    r"\s+function: '(?P<function>.{1,200}?)' \((?:.*[/\\])?(?P<file>.+):(?P<line>\d+)\)"
    r"\s+last reason: (?:\d+/\d+: )?(?P<reason>[^\n]{1,200})"
)
_BESIDE: Final = re.compile(r"\s{2,}# | \(HINT: ")
"""What follows a guard: the line of the program that it is for, and advice."""

GaveUp = tuple[str, str, str]
"""The function, its file's name and line, and the guard that no longer held. Of what was never
compiled only the line that calls torch.compile; the others are empty."""

GAVE_UP: Final[list[GaveUp]] = []
"""What torch.compile gave up on so far, or never compiled."""


def note_given_up(record: logging.LogRecord) -> bool:
    """A filter for Dynamo's logger: notes what it gave up on, and lets every record pass."""
    named = _BEGIN in str(record.msg)  # without formatting all that Dynamo may log
    logged = _LOGGED.search(record.getMessage()) if named else None
    if logged is not None:
        place = f"{logged['file']}:{logged['line']}"
        guard = _BESIDE.split(logged["reason"])[0].strip()
        GAVE_UP.append((logged["function"], place, guard))
        mark(_gave_up(GAVE_UP[-1:]))
    return True


def note_never_compiled(lines: list[str]) -> None:
    """Note lines that call torch.compile, in a program of which it has compiled nothing."""
    GAVE_UP.extend(("", line, "") for line in lines)
    mark(_gave_up(GAVE_UP[-len(lines) :]))


def _gave_up(rows: list[GaveUp]) -> str:
    return json.dumps({KEY: {"gave_up": rows}})


Unused = tuple[str, str, str, list[str], int, int, int, int, int, int, int, list[str]]
"""Of modules whose weights get gradients that no optimizer uses:
- their classes, that of the module that they are in, and the range of its calls
- the file and lines of each class's `forward`
- their weights, and those of all modules with such ranges
- the steps that were looked at, and the calls in these: all, those whose whole backward is for
  nothing, those where only the gradients of weights are
- backward passes whose gradients an optimizer clears; 0 where no optimizer has the weights
- the lines of calls whose gradients are for nothing"""

Repeated = tuple[str, str, str, list[str], int, int, int, int, int, int, list[str], list[str]]
"""Of a module that is called again with the very same input:
- its class, that of the module that it is in, and the range of its calls
- the file and lines of its `forward`
- its weights, and those of all modules with such ranges
- the steps that were looked at, and the calls in these: all, those that repeat another one, those
  of them with gradients
- the lines that call it, and those at which the ways to a call and to its repetition part"""

Padded = tuple[
    str, str, str, list[str], int, int, int, int, int, int, int, int, int, int, list[str]
]
"""Padding in the input of models of one class:
- the class, twice, and the range of the calls
- the file and lines of its `forward`
- the number of their weights, and of those of all models with such ranges
- the number of steps, and of calls in them
- positions in these calls: all; padding; padding behind the longest row of its batch; padding that
  would be left if each batch had rows of similar length
- pairs of positions within a row: all; of tokens
- the lines that call them"""

Unchanged = tuple[str, str, str, list[str], int, int, int, int, int, int, list[str]]
"""Modules of one class that compute the same result in every step:
- the class, that of the outermost module around them, and the range of its calls
- the file and lines of the class's `forward`
- the number of their weights, and of those of all outermost modules with such ranges
- the number of steps compared, and of unchanged calls in the last one
- multiplications of linear layers and convolutions: in these calls; in all with such ranges
- the lines that call them"""

Masked = tuple[Any, ...]
"""Modules whose rows are multiplied by zero, in part:
- their classes, that of the outermost module around them, and the range of its calls
- the file and lines of each class's `forward`; none if one of them is torch's own
- the number of their weights, and of those of all outermost modules with such ranges
- the number of steps, and of calls in them
- arithmetic operations of products: in these calls; of these, for rows that become zero
- the lines that call them"""

SeenProducts = tuple[Any, ...]
"""Products of matrices that lines of the program compute:
- the class of the outermost module around them, twice, and the range of its calls
- no lines
- the number of weights of such modules, and of those of all outermost modules with such ranges
- the number of steps, of such products in them, and of those with gradients
- operations: of them; of all products of these lines; of all products in calls with such ranges
- the lines

Behind that stands, by the key of the list:
- of three matrices in the costly order: operations in the other order; of the largest one the
  number of matrices, their sizes, and whether the first two are multiplied first
- of a factor that is mostly zeros: operations of zeros; the rows and columns of the factor in the
  largest product
- of adapters that are merged, where the products above are those that use the weight, and the
  operations and lines are those of the adapters: operations of the products that use the weights,
  and of branches instead; the rows, inner size and columns of the largest adapter
"""

WorkerRow = tuple[str, str, int, int, int, int]
"""Of the workers of a DataLoader: the function in which they are most often, its line that runs
most often, the loader's number, the samples in that function, all samples, and 1 if each of them
iterates over the dataset by itself."""

SEEN: Final[dict[str, list[Any]]] = {
    kind: []
    for kind in (
        UNUSED_GRADIENTS,
        REPEATED_CALLS,
        PADDED_INPUT,
        UNCHANGED_CALLS,
        PRODUCT_ORDER,
        ZEROS_IN_PRODUCTS,
        MERGED_ADAPTERS,
        MASKED_ROWS,
        WORKER_CODE,
    )
}
"""What was seen last of each kind: rows of `Unused`, `Repeated`, `Padded`, `Unchanged`, `Masked`,
`SeenProducts` and `WorkerRow`."""

SeenRow = Union[Unused, Repeated, Padded, Unchanged, Masked, SeenProducts, WorkerRow]


def note_seen(kind: str, rows: Sequence[SeenRow]) -> None:
    """Note what was seen of a kind, instead of what was noted before."""
    SEEN[kind][:] = rows
    mark(_seen(kind))


def _seen(kind: str) -> str:
    return json.dumps({KEY: {kind: SEEN[kind]}})


def list_noted(mark: Callable[[str], None]) -> None:
    """Record marks that list what was noted so far: ranges, what torch.compile gave up on, and
    what was seen of each kind."""
    if GAVE_UP:
        mark(_gave_up(GAVE_UP))
    for kind, rows in SEEN.items():
        if rows:
            mark(_seen(kind))
    if _NOTED:
        firsts = range(0, len(_NOTED), _IN_A_MARK)
        lists = [json.dumps(_NOTED[first : first + _IN_A_MARK]) for first in firsts]
        for ranges in ["[]"] * CLOCK_READINGS + lists:
            mark(f'{{"{KEY}": {{"graph_ranges": {ranges}, "clock_ns": {time.monotonic_ns()}}}}}')


Function = TypeVar("Function", bound=Callable[..., Any])


class Region(str, Enum):
    """The phases of a training step, in the order in which they begin."""

    __str__ = str.__str__

    STEP = protocol.STEP
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
    """An open range.

    Attributes:
        region: the object that opened it.
        close: closes it; works only on the thread that opened it.
        ended: whether another thread left it, and its own thread must still close it.
    """

    __slots__ = ("close", "ended", "region")

    def __init__(self, opened_by: region, close: Callable[[], object]) -> None:
        self.region = opened_by
        self.close = close
        self.ended = False


class _Open(threading.local):
    """The open ranges of this thread, innermost last."""

    def __init__(self) -> None:
        self.ranges: list[_Range] = []


_OPEN: Final = _Open()
_recorder: Recorder | None = None
_out_of_order_warned = False


class region:
    """A named range: `with region("forward"):`, or `@region("loss")` on a function.

    It belongs to the thread that enters it, closes when an exception leaves it, and can be entered
    again while it is open. If another thread leaves it, as with a generator that is resumed there,
    it stays open until its own thread next enters or leaves a range. Without a profiler it does
    nothing, in less than 1 us, and a decorated function is returned unchanged.

    On a coroutine function it covers the waits too; ranges of coroutines that take turns on one
    thread are not kept apart. On a generator it covers the code between two `yield`s.
    """

    __slots__ = ("_latest", "_name", "_payload")

    _latest: _Range | None
    """The range opened last, while it is open. Not set without a profiler: that would cost time."""

    def __init__(self, name: str, payload: int | None = None) -> None:
        """Name the range; it opens later.

        Args:
            name: what the code inside does, the same every time; `Region` has the usual names.
            payload: a number that changes, such as the step's index.

        Raises:
            TypeError: the payload is not an int.
            ValueError: the payload needs more than 64 bits.
        """
        if payload is not None and not (type(payload) is int and -(2**63) <= payload < 2**63):
            _refuse(payload)
        self._name = name
        self._payload = payload

    def __enter__(self) -> None:
        if protocol.COLLECTOR_HERE is not None:
            here = _OPEN.ranges
            if here and here[-1].ended:
                _close_ended(here)
            self._latest = _Range(self, _opened(self._name, self._payload))
            here.append(self._latest)

    def __exit__(self, *_raised: object) -> None:
        if protocol.COLLECTOR_HERE is not None:
            here = _OPEN.ranges
            if here and here[-1].region is self:
                self._latest = None  # a range and its region would keep each other in memory
                here.pop().close()
            else:
                self._close_out_of_order(here)
            if here and here[-1].ended:
                _close_ended(here)

    def _close_out_of_order(self, here: list[_Range]) -> None:
        for index in range(len(here) - 1, -1, -1):
            if here[index].region is self:
                _warn_out_of_order(self._name, here[-1].region._name)
                self._latest = None
                here.pop(index).close()
                return
        # another thread opened it, and only that thread can close it
        if self._latest is not None:
            self._latest.ended = True

    def __call__(self, function: Function) -> Function:
        require_function(function)
        if protocol.COLLECTOR_HERE is None:
            return function
        return cast("Function", wrapped(self, function))


def mark(text: str) -> None:
    """Record an instant with this text; does nothing without a profiler."""
    recorder = _recorder_here()
    if recorder is not None:
        recorder.mark(text)


def _close_ended(here: list[_Range]) -> None:
    """Close ranges that other threads left, unless a range is still open inside."""
    while here and here[-1].ended:
        here.pop().close()


def _opened(name: str, payload: int | None) -> Callable[[], object]:
    recorder = _recorder or _recorder_here()
    if recorder is None or THIS_PROCESS.recorded:
        return nothing
    THIS_PROCESS.ranges += 1
    return noted(str(name), None, recorder.open(str(name), payload))


def _recorder_here() -> Recorder | None:
    """The recorder; looked for again until there is one, since torch may be imported later."""
    global _recorder
    if _recorder is None and protocol.COLLECTOR_HERE is not None:
        save_status_at_exit()
        _recorder = recorders.find_recorder(protocol.COLLECTOR_HERE)
        if _recorder is None:
            warn_nothing_recorded(protocol.COLLECTOR_HERE)
    return _recorder


@cache
def warn_nothing_recorded(collector: Collector) -> None:
    """Say once on stderr which package is missing, and how to install it."""
    missing, package = (
        ("torch is missing", "torch")
        if collector == "kineto"
        else ("the nvtx package is missing, and no CUDA build of torch is loaded", "nvtx")
    )
    sys.stderr.write(
        "nsysflow: a profiler is attached, but no range of this process will be recorded:"
        f" {missing}. Install it:\n  pip install {package}\n"
    )


def _warn_out_of_order(outer: str, inner: str) -> None:
    """Say once on stderr that ranges overlap instead of nesting."""
    global _out_of_order_warned
    if not _out_of_order_warned:
        _out_of_order_warned = True
        sys.stderr.write(
            f"nsysflow: the range '{outer}' ended before '{inner}', which was opened inside it."
            " Their times in the report are wrong. Do not call next() on nsysflow.steps inside a"
            " region, and put no region around code that other coroutines or generators interrupt\n"
        )


def _refuse(payload: object) -> NoReturn:
    msg = f"a range's payload must be an int of at most 64 bits or None, not {payload!r}"
    raise (ValueError if type(payload) is int else TypeError)(msg)
