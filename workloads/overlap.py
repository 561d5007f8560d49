"""Batches copied to the GPU before it computes, or while it does.

On one stream a copy and the kernels behind it take turns, even where the host never waits. On a
stream of its own the next batch is copied into a second buffer while the GPU computes on the
first.
"""

from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor

from nsysflow.regions import Region, region
from nsysflow.workloads.config import Config, Work
from nsysflow.workloads.training import Training

POOL: Final = 3
"""Batches on the host that take turns; one more than there are buffers on the device, so that each
buffer is given other numbers every time."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Attributes:
    batch: rows of a batch.
    width: of the input and of each layer.
    layers: linear layers; the GPU must compute for longer than a copy takes.
    """

    batch: int
    width: int
    layers: int


class Feed(Protocol):
    """Brings batches to the device."""

    def take(self, index: int) -> Tensor:
        """Batch `index`, for what is launched next."""

    def give_back(self, index: int) -> None:
        """All work on batch `index` is launched."""


class InTurn:
    """One buffer, filled on the stream that computes."""

    def __init__(self, pool: Tensor, device: str) -> None:
        self._pool = pool
        self._buffer = torch.empty_like(pool[0], device=device)

    def take(self, index: int) -> Tensor:
        return self._buffer.copy_(self._pool[index % POOL], non_blocking=True)

    def give_back(self, index: int) -> None:
        pass


class Ahead:
    """Two buffers, one filled on a stream of its own while the other is in use."""

    def __init__(self, pool: Tensor) -> None:
        self._pool = pool
        self._stream = torch.cuda.Stream()
        self._stream.wait_stream(torch.cuda.current_stream())  # the buffers' memory may be in use
        self._buffers = [torch.empty_like(pool[0], device="cuda") for _ in range(2)]
        self._filled = [torch.cuda.Event() for _ in self._buffers]
        self._free = [torch.cuda.Event() for _ in self._buffers]
        self._fill(0)

    def take(self, index: int) -> Tensor:
        self._fill(index + 1)
        torch.cuda.current_stream().wait_event(self._filled[index % 2])
        return self._buffers[index % 2]

    def give_back(self, index: int) -> None:
        self._free[index % 2].record()

    def _fill(self, index: int) -> None:
        # an event that nothing has recorded yet holds nobody up
        self._stream.wait_event(self._free[index % 2])
        with torch.cuda.stream(self._stream):
            self._buffers[index % 2].copy_(self._pool[index % POOL], non_blocking=True)
            self._filled[index % 2].record()


def overlap(config: Config[Options]) -> Work:
    """Copy a batch to the device and train on it."""
    options = config.options
    training = Training(config, [options.width] * (options.layers + 1), options.batch)
    pool = torch.randn(POOL, options.batch, options.width, dtype=config.dtype)
    ahead = config.variant == "side_stream" and config.cuda
    if config.cuda:
        pool = pool.pin_memory()
    feed: Feed = Ahead(pool) if ahead else InTurn(pool, config.on)

    def step(index: int) -> None:
        with region(Region.H2D):
            batch = feed.take(index)
        training.step(batch)
        feed.give_back(index)

    note = "" if config.cuda else "there are no streams here"
    return Work(step=step, result=training.loss, flops=training.flops, note=note)
