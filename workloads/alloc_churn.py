"""Memory handed back to the driver after each step, or left with PyTorch for the next one.

`torch.cuda.empty_cache()` waits for the GPU and frees block by block; the next step then allocates
them again, one by one, while the GPU waits. What PyTorch keeps it hands out again for next to
nothing.
"""

from dataclasses import dataclass

import torch

from nsysflow.regions import Region, region
from nsysflow.workloads.config import Config, Work
from nsysflow.workloads.training import Training


@dataclass(frozen=True, kw_only=True)
class Options:
    """Attributes:
    batch: rows of a batch.
    width: of the input and of each layer.
    layers: linear layers.
    """

    batch: int
    width: int
    layers: int


def alloc_churn(config: Config[Options]) -> Work:
    """Train, and at the end of a step empty the cache of the allocator, or not."""
    options = config.options
    training = Training(config, [options.width] * (options.layers + 1), options.batch)
    batch = torch.randn(options.batch, options.width, **config.placed)
    empties = config.variant == "empty_cache" and config.cuda

    def step(_index: int) -> None:
        training.step(batch)
        with region(Region.METRICS):
            if empties:
                torch.cuda.empty_cache()

    note = "" if config.cuda else "no cache to empty here"
    return Work(step=step, result=training.loss, flops=training.flops, note=note)
