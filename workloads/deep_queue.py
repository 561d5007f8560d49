"""A control: far more long kernels than the GPU's queue holds.

The host is always ahead, so the GPU never waits. Once about a thousand launches are queued, each
further launch call blocks until there is room. This back-pressure costs nothing.
"""

from dataclasses import dataclass

from torch import Tensor

from nsysflow.runtime.regions import Region, region
from nsysflow.workloads.common.training import Config, Matmuls, Work


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `deep_queue`.

    Attributes:
        kernels: kernels per step; the queue holds about a thousand.
        size: rows and columns of the matrices.
    """

    kernels: int
    size: int


def deep_queue(config: Config[Options]) -> Work:
    """Launch one long kernel after another."""
    matmuls = Matmuls(config, config.options.size)

    def step(_batch: int) -> None:
        with region(Region.FORWARD):
            matmuls.launch(config.options.kernels)

    def result() -> Tensor:
        return matmuls.out

    return Work(step=step, result=result)
