"""Stop when the loss is NaN: by waiting for the GPU in each step, or without waiting.

`if loss.isnan()` makes the host wait until the GPU has finished everything launched so far. Then
the GPU waits while the host fetches the next batch and launches again. Instead, the flag can be
copied to pinned memory, followed by an event, and read a few steps later when it has long arrived.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor

from nsysflow.base.errors import WorkloadError
from nsysflow.runtime.regions import Region, region
from nsysflow.workloads.common.training import Config, Loader, Training, Work

RING: Final = 8
"""The most flags in flight, so a NaN stops the run after at most 8 steps. It is more than the 5
steps of the usual window, so that no wait for an old flag is captured."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `nan_check`.

    Attributes:
        batch: rows of a batch.
        width: width of the input and of each layer.
        layers: number of linear layers.
        data_ms: milliseconds of host work per batch.
        nan_at_step: the step whose batch contains a NaN; -1 for none.
    """

    batch: int
    width: int
    layers: int
    data_ms: float
    nan_at_step: int


class Event(Protocol):
    """A point in the GPU's work, like `torch.cuda.Event`."""

    def record(self) -> None:
        """Put the point after everything launched so far."""

    def query(self) -> bool:
        """Whether the GPU has reached the point."""

    def synchronize(self) -> None:
        """Wait until the GPU has reached the point."""


class CompletedEvent:
    """An event that is always complete: on a CPU nothing is queued."""

    def record(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


class NanFlags:
    """Flags on their way from the GPU to the host, each read once it has arrived."""

    def __init__(self, event: Callable[[], Event], *, pinned: bool) -> None:
        self._flags = torch.zeros(RING, dtype=torch.bool, pin_memory=pinned).unbind()
        self._events = [event() for _ in range(RING)]
        self._in_flight: deque[int] = deque()

    def send(self, flag: Tensor, step: int) -> None:
        """Copy a flag from the GPU to the host without waiting for it."""
        if len(self._in_flight) == RING:
            self._events[self._in_flight[0] % RING].synchronize()
            self.read(step)
        self._flags[step % RING].copy_(flag, non_blocking=True)
        self._events[step % RING].record()
        self._in_flight.append(step)

    def read(self, now: int) -> None:
        """Read the flags that have arrived.

        Raises:
            WorkloadError: one of them is set.
        """
        while self._in_flight and self._events[self._in_flight[0] % RING].query():
            step = self._in_flight.popleft()
            if self._flags[step % RING]:
                raise stopped(step, now)

    def read_all(self) -> None:
        """Wait for the flags in flight, then `read`."""
        if self._in_flight:
            last = self._in_flight[-1]
            self._events[last % RING].synchronize()
            self.read(last)


def stopped(step: int, now: int) -> WorkloadError:
    """The error that ends the run: the loss of `step` is NaN, noticed in step `now`."""
    return WorkloadError(f"nan_check stopped in step {now}: the loss of step {step} is NaN")


def nan_check(config: Config[Options]) -> Work:
    """Train, and check the loss of each step for NaN."""
    options = config.options
    training = Training(config, [options.width] * (options.layers + 1), options.batch)
    batch = torch.randn(options.batch, options.width, **config.placed)
    batch_with_nan = batch.clone()
    batch_with_nan[0, 0] = torch.nan
    waits = config.variant == "sync"
    flags = NanFlags(torch.cuda.Event if config.cuda else CompletedEvent, pinned=config.cuda)

    def check(loss: Tensor, step: int) -> None:
        if not waits:
            flags.send(loss.isnan(), step)
            flags.read(step)
        elif loss.isnan():
            raise stopped(step, step)

    def step(index: int) -> None:
        loss = training.step(batch_with_nan if index == options.nan_at_step else batch)
        with region(Region.METRICS):
            check(loss, index)

    def result() -> Tensor:
        flags.read_all()
        return training.loss()

    def batches(count: int) -> Loader:
        return Loader(count=count, work_ms=options.data_ms)

    note = "" if waits or config.cuda else "on a CPU flags arrive immediately"
    return Work(step=step, result=result, batches=batches, flops=training.flops, note=note)
