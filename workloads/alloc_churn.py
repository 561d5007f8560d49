"""Memory returned to the driver after each step, or kept by PyTorch for the next one.

`torch.cuda.empty_cache()` waits for the GPU and frees block by block. The next step allocates the
blocks again, one by one, while the GPU waits. Memory that PyTorch keeps is reused at almost no
cost.
"""

from dataclasses import dataclass

import torch

from nsysflow.runtime.regions import Region, region
from nsysflow.workloads.common.training import Config, Training, Work


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `alloc_churn`.

    Attributes:
        batch: rows of a batch.
        width: width of the input and of each layer.
        layers: number of linear layers.
    """

    batch: int
    width: int
    layers: int


def alloc_churn(config: Config[Options]) -> Work:
    """Train, and empty the allocator's cache after each step or not."""
    options = config.options
    training = Training(config, [options.width] * (options.layers + 1), options.batch)
    batch = torch.randn(options.batch, options.width, **config.placed)
    empties = config.variant == "empty_cache" and config.cuda

    def step(_index: int) -> None:
        training.step(batch)
        with region(Region.METRICS):
            if empties:
                torch.cuda.empty_cache()

    note = "" if config.cuda else "a CPU has no cache to empty"
    return Work(step=step, result=training.loss, flops=training.flops, note=note)
