"""A control: the host waits for the GPU, and launches again at once.

The wait is long, since the kernels are, and costs next to nothing: the GPU is busy all through it
and stands idle only until the next launch arrives. A list of syncs by duration blames it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nsysflow.regions import Region, region
from nsysflow.workloads.config import Config, Work
from nsysflow.workloads.matmuls import Matmuls


@dataclass(frozen=True, kw_only=True)
class Options:
    """Attributes:
    kernels: long kernels before the wait, and again after it.
    size: rows and columns of the matrices they multiply.
    """

    kernels: int
    size: int


def benign_sync(config: Config[Options]) -> Work:
    """Multiply, wait, multiply; the next step begins while the GPU is busy."""
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

    return Work(step=step, result=result, note="" if config.cuda else "nothing to wait for here")
