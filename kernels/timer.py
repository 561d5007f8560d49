"""Device time of named regions, by CUDA events: nothing waits until the times are read.

    timers = CUDATimerCollection(["forward", "backward"], enabled=args.timing)
    with timers.region("forward"):
        loss = model(batch)
    for timing in timers.read():
        print(timing.name, timing.count, timing.total_ns)

An event pair spans all that its stream did in between, idle included: what a region took, not the
sum of its kernels. Resolution is about half a microsecond. Regions cannot be timed inside a CUDA
graph: the pair would be recorded once, at capture.
"""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Protocol

PENDING_MAX: Final = 1024
"""Passes kept as events; beyond it those that the GPU has finished are added up, unwaited for."""


class Event(Protocol):
    """What is used of `torch.cuda.Event(enable_timing=True)`."""

    def record(self) -> None:
        """Mark this point of the current stream."""

    def query(self) -> bool:
        """Whether the GPU has passed the mark."""

    def synchronize(self) -> None:
        """Wait until it has."""

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this mark to another of its kind."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """What a region took, over all its passes."""

    name: str
    count: int
    """Passes; a region entered again before it was left is one pass."""
    total_ns: int | None
    """Null where there was no pass."""


class CUDATimer:
    """Device time of one region: `with timer:` around it, on one stream, then `read`.

    Entered again, it adds up; entered again before it was left, the outermost pass counts.
    """

    def __init__(self, name: str = "", *, event: Callable[[], Event] | None = None) -> None:
        """A timer at null.

        Args:
            name: what the reading is called.
            event: makes an event; a timing CUDA event by default.
        """
        self.name = name
        self._event = event or _cuda_event
        self._depth = 0
        self._free: list[Event] = []
        self._begun: Event | None = None
        self._pending: deque[tuple[Event, Event]] = deque()
        self._count = 0
        self._total_ns = 0

    def __enter__(self) -> "CUDATimer":
        self._depth += 1
        if self._depth == 1:
            self._begun = self._recorded()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth == 0 and self._begun is not None:
            self._pending.append((self._begun, self._recorded()))
            while len(self._pending) > PENDING_MAX and self._pending[0][1].query():
                self._add_oldest()

    def read(self) -> Timing:
        """What the finished passes took. Waits for the GPU to finish the last of them."""
        if self._pending:
            self._pending[-1][1].synchronize()  # one stream: the earlier ones are done too
        while self._pending:
            self._add_oldest()
        return Timing(
            name=self.name, count=self._count, total_ns=self._total_ns if self._count else None
        )

    def _recorded(self) -> Event:
        event = self._free.pop() if self._free else self._event()
        event.record()
        return event

    def _add_oldest(self) -> None:
        begin, end = self._pending.popleft()
        self._total_ns += round(begin.elapsed_time(end) * 1e6)
        self._count += 1
        self._free += (begin, end)


class CUDATimerCollection:
    """A timer for each of some regions, or none at all: disabled, it makes no event and no call."""

    def __init__(
        self,
        regions: Iterable[str],
        enabled: bool = True,
        *,
        event: Callable[[], Event] | None = None,
    ) -> None:
        """Timers at null.

        Args:
            regions: their names, in the order of the readings.
            enabled: whether anything is timed.
            event: makes an event; a timing CUDA event by default.
        """
        self.enabled = enabled
        self._timers = {name: CUDATimer(name, event=event) for name in regions}

    def region(self, name: str) -> AbstractContextManager[object]:
        """What to put `with` before the region.

        Raises:
            ValueError: there is no region of that name, timed or not.
        """
        timer = self._timers.get(name)
        if timer is None:
            known = ", ".join(self._timers) or "none"
            raise ValueError(f"region must be one of {known}, and is {name!r}")
        return timer if self.enabled else _NOT_TIMED

    def read(self) -> tuple[Timing, ...]:
        """What each region took. Waits for the GPU where there is something to wait for."""
        return tuple(timer.read() for timer in self._timers.values())


_NOT_TIMED: Final = nullcontext()


def _cuda_event() -> Event:
    import torch  # here, so that a disabled collection costs no import

    event: Event = torch.cuda.Event(enable_timing=True)
    return event
