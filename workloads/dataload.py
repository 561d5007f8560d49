"""The host's work for the next batch: after a sync, or while the GPU computes.

A program that waits for the GPU at the end of each step, to time it for example, leaves the GPU
without work and keeps it waiting while the next batch is loaded. Without the wait, the host loads
the next batch while the GPU computes.
"""

from dataclasses import dataclass

import torch

from nsysflow.runtime.regions import Region, region
from nsysflow.workloads.common.training import Config, Loader, Training, Work


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `dataload`.

    Attributes:
        batch: rows of a batch.
        width: width of the input and of each layer.
        layers: number of linear layers; the GPU must be busy for longer than `data_ms`.
        data_ms: milliseconds of host work per batch.
    """

    batch: int
    width: int
    layers: int
    data_ms: float


def dataload(config: Config[Options]) -> Work:
    """Train on batches that take the host a while to load."""
    options = config.options
    training = Training(config, [options.width] * (options.layers + 1), options.batch)
    batch = torch.randn(options.batch, options.width, **config.placed)
    waits = config.variant == "sync" and config.cuda

    def step(_index: int) -> None:
        training.step(batch)
        with region(Region.METRICS):
            if waits:
                torch.cuda.synchronize()

    def batches(count: int) -> Loader:
        return Loader(count=count, work_ms=options.data_ms)

    without_wait = config.variant == "sync" and not waits
    note = "as async: a CPU has nothing to wait for" if without_wait else ""
    return Work(step=step, result=training.loss, batches=batches, flops=training.flops, note=note)
