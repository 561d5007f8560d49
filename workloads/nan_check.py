"""Stop at a loss that is NaN: by asking the GPU each step, or by letting it tell.

`if loss.isnan()` makes the host wait until the GPU has done all that was launched; then the GPU
waits in turn, while the host fetches the next batch and launches again. Copied into pinned memory
instead, with an event behind it, the answer is read some steps later, when it has long arrived.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor

from nsysflow.errors import WorkloadError
from nsysflow.regions import Region, region
from nsysflow.workloads.config import Config, Work
from nsysflow.workloads.data import Loader
from nsysflow.workloads.training import Training

RING: Final = 8
"""Answers under way at most, so a NaN stops the run after 8 steps at the latest. More than the 5
steps of the usual window, so that no wait for an old answer falls into it."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Attributes:
    batch: rows of a batch.
    width: of the input and of each layer.
    layers: linear layers.
    data_ms: the host's work for a batch.
    nan_at_step: whose batch holds a NaN; -1 for none.
    """

    batch: int
    width: int
    layers: int
    data_ms: float
    nan_at_step: int


class Event(Protocol):
    """A point in the GPU's work, as `torch.cuda.Event` is."""

    def record(self) -> None:
        """After all that was launched so far."""

    def query(self) -> bool:
        """Whether the GPU has passed it."""

    def synchronize(self) -> None:
        """Wait until it has."""


class Passed:
    """An event where all is done at once: on a CPU."""

    def record(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


class Answers:
    """Flags on their way from the GPU, each read when it has arrived."""

    def __init__(self, event: Callable[[], Event], *, pinned: bool) -> None:
        self._flags = torch.zeros(RING, dtype=torch.bool, pin_memory=pinned).unbind()
        self._events = [event() for _ in range(RING)]
        self._under_way: deque[int] = deque()

    def send(self, flag: Tensor, step: int) -> None:
        """Copy a flag of the GPU to the host, without waiting for it."""
        if len(self._under_way) == RING:
            self._events[self._under_way[0] % RING].synchronize()
            self.read(step)
        self._flags[step % RING].copy_(flag, non_blocking=True)
        self._events[step % RING].record()
        self._under_way.append(step)

    def read(self, now: int) -> None:
        """Look at the flags that have arrived.

        Raises:
            WorkloadError: one of them is set.
        """
        while self._under_way and self._events[self._under_way[0] % RING].query():
            step = self._under_way.popleft()
            if self._flags[step % RING]:
                raise stopped(step, now)

    def read_all(self) -> None:
        """Wait for those under way too; as `read`."""
        if self._under_way:
            last = self._under_way[-1]
            self._events[last % RING].synchronize()
            self.read(last)


def stopped(step: int, now: int) -> WorkloadError:
    """What ends the run: the loss of `step` is NaN, found out in step `now`."""
    return WorkloadError(f"nan_check stopped in step {now}: the loss of step {step} is NaN")


def nan_check(config: Config[Options]) -> Work:
    """Train, and look at the loss of each step."""
    options = config.options
    training = Training(config, [options.width] * (options.layers + 1), options.batch)
    batch = torch.randn(options.batch, options.width, **config.placed)
    spoilt = batch.clone()
    spoilt[0, 0] = torch.nan
    lets_tell = config.variant == "async"
    answers = Answers(torch.cuda.Event if config.cuda else Passed, pinned=config.cuda)

    def check(loss: Tensor, step: int) -> None:
        if lets_tell:
            answers.send(loss.isnan(), step)
            answers.read(step)
        elif loss.isnan():
            raise stopped(step, step)

    def step(index: int) -> None:
        loss = training.step(spoilt if index == options.nan_at_step else batch)
        with region(Region.METRICS):
            check(loss, index)

    def result() -> Tensor:
        answers.read_all()
        return training.loss()

    def batches(count: int) -> Loader:
        return Loader(count=count, work_ms=options.data_ms)

    note = "answers come at once here" if lets_tell and not config.cuda else ""
    return Work(step=step, result=result, batches=batches, flops=training.flops, note=note)
