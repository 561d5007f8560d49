"""Tiny kernels, launched one by one, or as a CUDA graph.

A launch takes the host longer than such a kernel takes the GPU, so the GPU waits between any two
of them; a graph launches them all at once.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nsysflow.regions import Region, region
from nsysflow.workloads.config import Config, Work
from nsysflow.workloads.graphs import captured


@dataclass(frozen=True, kw_only=True)
class Options:
    """Attributes:
    kernels: elementwise kernels in a step.
    numel: elements each of them adds.
    """

    kernels: int
    numel: int


def launch_bound(config: Config[Options]) -> Work:
    """`kernels` times `total += part`, with nothing between the launches."""
    part = torch.rand(config.options.numel, **config.placed)
    total = torch.zeros_like(part)

    def add() -> None:
        for _ in range(config.options.kernels):
            total.add_(part)

    graph = config.variant == "graph"
    launch = add
    if graph and config.cuda:
        launch = captured(add)
        total.zero_()  # capturing ran it once

    def step(_batch: int) -> None:
        with region(Region.FORWARD):
            launch()

    def result() -> Tensor:
        return total

    note = "as eager: no CUDA graphs here" if graph and not config.cuda else ""
    return Work(step=step, result=result, note=note)
