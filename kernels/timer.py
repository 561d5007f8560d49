"""Device time of named regions by CUDA events; nothing waits until the times are read.

    timers = CUDATimerCollection(["forward", "backward"], enabled=args.timing)
    with timers.region("forward"):
        loss = model(batch)
    for timing in timers.read():
        print(timing.name, timing.count, timing.total_ns)

A pair of events spans everything that its stream did in between, including idle time: it is the
duration of the region, not the sum of its kernels. The resolution is about half a microsecond.
Regions inside a CUDA graph cannot be timed: the pair would only be recorded during capture.
"""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Protocol

PENDING_MAX: Final = 1024
"""Passes kept as events. Beyond that, finished passes are added up without waiting for others."""


class Event(Protocol):
    """The part of `torch.cuda.Event(enable_timing=True)` that is used."""

    def record(self) -> None:
        """Mark this point in the current stream."""

    def query(self) -> bool:
        """Whether the GPU has reached the mark."""

    def synchronize(self) -> None:
        """Wait until the GPU has reached the mark."""

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this mark to `end_event`."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The device time of a region over all its passes."""

    name: str
    count: int
    """How many passes; a nested pass through the same region does not count."""
    total_ns: int | None
    """None if there was no pass."""


class CUDATimer:
    """Device time of one region: `with timer:` around it, on one stream, then `read`.

    Several passes add up. Of nested passes, only the outermost counts.
    """

    def __init__(self, name: str = "", *, event: Callable[[], Event] | None = None) -> None:
        """Create a timer without passes.

        Args:
            name: the name in the reading.
            event: makes an event; by default a CUDA event with timing.
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
        """The time of all finished passes. Waits for the GPU to finish the last of them."""
        if self._pending:
            self._pending[-1][1].synchronize()  # same stream: the earlier ones are complete too
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
    """One timer per region. When disabled it makes no event and no CUDA call."""

    def __init__(
        self,
        regions: Iterable[str],
        enabled: bool = True,
        *,
        event: Callable[[], Event] | None = None,
    ) -> None:
        """Create timers without passes.

        Args:
            regions: the names of the regions, in the order of the readings.
            enabled: whether anything is timed.
            event: makes an event; by default a CUDA event with timing.
        """
        self.enabled = enabled
        self._timers = {name: CUDATimer(name, event=event) for name in regions}

    def region(self, name: str) -> AbstractContextManager[object]:
        """The context manager to put around the region.

        Raises:
            ValueError: there is no region of that name, even if nothing is timed.
        """
        timer = self._timers.get(name)
        if timer is None:
            known = ", ".join(self._timers) or "none"
            raise ValueError(f"region must be one of {known}, but is {name!r}")
        return timer if self.enabled else _NOT_TIMED

    def read(self) -> tuple[Timing, ...]:
        """The time of each region. Waits for the GPU if any region is unfinished."""
        return tuple(timer.read() for timer in self._timers.values())


_NOT_TIMED: Final = nullcontext()


def _cuda_event() -> Event:
    import torch  # here, so that a disabled collection does not import it

    event: Event = torch.cuda.Event(enable_timing=True)
    return event
