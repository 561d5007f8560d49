"""A control: the host waits for the GPU, then launches again immediately.

The wait is long because the kernels are, but it costs almost nothing: the GPU is busy during the
wait and idle only until the next launch arrives. A list of syncs sorted by duration would blame it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nsysflow.runtime.regions import Region, region
from nsysflow.workloads.common.training import Config, Matmuls, Work


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `benign_sync`.

    Attributes:
        kernels: long kernels before the wait, and as many after it.
        size: rows and columns of the matrices.
    """

    kernels: int
    size: int


def benign_sync(config: Config[Options]) -> Work:
    """Multiply, wait, multiply. The next step begins while the GPU is still busy."""
    matmuls = Matmuls(config, config.options.size)

    def step(_batch: int) -> None:
        with region(Region.FORWARD):
            matmuls.launch(config.options.kernels)
        with region(Region.METRICS):
            if config.cuda:
                torch.cuda.synchronize()
        with region(Region.FORWARD):
            matmuls.launch(config.options.kernels)

    def result() -> Tensor:
        return matmuls.out

    note = "" if config.cuda else "a CPU has nothing to wait for"
    return Work(step=step, result=result, note=note)
