"""Metrics of each step: copied to the host every step, or summed on the GPU.

`.cpu()` makes the host wait until the GPU has finished everything launched so far. Then the GPU
waits while the host logs, fetches the next batch and launches again. Metrics that are summed on the
GPU are read once, after the last step.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nsysflow.runtime.regions import Region, region
from nsysflow.workloads.common.training import Config, Loader, Training, Work


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `metrics`.

    Attributes:
        batch: rows of a batch.
        width: width of the input and of each layer.
        layers: number of linear layers.
        data_ms: milliseconds of host work per batch.
    """

    batch: int
    width: int
    layers: int
    data_ms: float


def metrics(config: Config[Options]) -> Work:
    """Train, and sum the loss and its square root over the steps."""
    options = config.options
    training = Training(config, [options.width] * (options.layers + 1), options.batch)
    batch = torch.randn(options.batch, options.width, **config.placed)
    each_step = config.variant == "each_step"
    total = torch.zeros(2, device="cpu" if each_step else config.on)

    def step(_index: int) -> None:
        loss = training.step(batch)
        with region(Region.METRICS):
            of_step = torch.stack([loss, loss.sqrt()]).float()
            total.add_(of_step.cpu() if each_step else of_step)

    def result() -> Tensor:
        return total

    def batches(count: int) -> Loader:
        return Loader(count=count, work_ms=options.data_ms)

    note = "" if config.cuda else "a CPU has nothing to wait for"
    return Work(step=step, result=result, batches=batches, flops=training.flops, note=note)
