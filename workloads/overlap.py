"""Batches copied to the GPU before it computes, or while it computes.

On one stream a copy and the kernels after it take turns, even if the host never waits. On a
separate stream, the next batch is copied into a second buffer while the GPU computes on the first.
"""

from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor

from nsysflow.runtime.regions import Region, region
from nsysflow.workloads.common.training import Config, Training, Work

POOL: Final = 3
"""Batches on the host that are used in turn. One more than the buffers on the device, so that a
buffer gets different numbers each time."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `overlap`.

    Attributes:
        batch: rows of a batch.
        width: width of the input and of each layer.
        layers: number of linear layers; the GPU must compute for longer than a copy takes.
    """

    batch: int
    width: int
    layers: int


class Feed(Protocol):
    """Copies batches to the device."""

    def take(self, index: int) -> Tensor:
        """Batch `index` on the device, for the work launched next."""

    def give_back(self, index: int) -> None:
        """Say that all work on batch `index` has been launched."""


class InTurn:
    """One buffer, filled on the compute stream."""

    def __init__(self, pool: Tensor, device: str) -> None:
        self._pool = pool
        self._buffer = torch.empty_like(pool[0], device=device)

    def take(self, index: int) -> Tensor:
        return self._buffer.copy_(self._pool[index % POOL], non_blocking=True)

    def give_back(self, index: int) -> None:
        pass


class SideStream:
    """Two buffers; one is filled on a separate stream while the other is in use."""

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
        # waiting for an event that was never recorded returns immediately
        self._stream.wait_event(self._free[index % 2])
        with torch.cuda.stream(self._stream):
            self._buffers[index % 2].copy_(self._pool[index % POOL], non_blocking=True)
            self._filled[index % 2].record()


def overlap(config: Config[Options]) -> Work:
    """Copy a batch to the device and train on it."""
    options = config.options
    training = Training(config, [options.width] * (options.layers + 1), options.batch)
    pool = torch.randn(POOL, options.batch, options.width, dtype=config.dtype)
    aside = config.variant == "side_stream" and config.cuda
    if config.cuda:
        pool = pool.pin_memory()
    feed: Feed = SideStream(pool) if aside else InTurn(pool, config.on)

    def step(index: int) -> None:
        with region(Region.H2D):
            batch = feed.take(index)
        training.step(batch)
        feed.give_back(index)

    note = "" if config.cuda else "a CPU has no streams"
    return Work(step=step, result=training.loss, flops=training.flops, note=note)
