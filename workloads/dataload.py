"""The host's work for the next batch: behind a sync, or beside the GPU's work.

Whoever waits for the GPU at the end of a step, to time it say, lets it run dry and then keeps it
waiting for as long as the next batch takes. Without the wait the host prepares that batch while
the GPU computes.
"""

from dataclasses import dataclass

import torch

from nsysflow.regions import Region, region
from nsysflow.workloads.config import Config, Work
from nsysflow.workloads.data import Loader
from nsysflow.workloads.training import Training


@dataclass(frozen=True, kw_only=True)
class Options:
    """Attributes:
    batch: rows of a batch.
    width: of the input and of each layer.
    layers: linear layers; the GPU must be busy for longer than `data_ms`.
    data_ms: the host's work for a batch.
    """

    batch: int
    width: int
    layers: int
    data_ms: float


def dataload(config: Config[Options]) -> Work:
    """Train on batches whose loading takes the host a while."""
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

    note = "as async: nothing to wait for here" if config.variant == "sync" and not waits else ""
    return Work(step=step, result=training.loss, batches=batches, flops=training.flops, note=note)
