"""Metrics of each step: brought to the host at once, or added up on the GPU.

`.cpu()` makes the host wait until the GPU has done all that was launched; then the GPU waits in
turn, while the host logs, fetches the next batch and launches again. Added up on the GPU they are
read once, after the last step.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nsysflow.regions import Region, region
from nsysflow.workloads.config import Config, Work
from nsysflow.workloads.data import Loader
from nsysflow.workloads.training import Training


@dataclass(frozen=True, kw_only=True)
class Options:
    """Attributes:
    batch: rows of a batch.
    width: of the input and of each layer.
    layers: linear layers.
    data_ms: the host's work for a batch.
    """

    batch: int
    width: int
    layers: int
    data_ms: float


def metrics(config: Config[Options]) -> Work:
    """Train, and add up the loss and its root over the steps."""
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

    note = "" if config.cuda else "nothing to wait for here"
    return Work(step=step, result=result, batches=batches, flops=training.flops, note=note)
