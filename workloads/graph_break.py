"""A question to the GPU inside a compiled function, or the same without one.

`if largest > LIMIT` needs the number on the host: torch.compile ends its graph there, the host
waits for the GPU, and what follows is launched when the GPU has nothing left to do. As a factor
that is 1 where nothing is too large, the function stays one graph, and the host never asks.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from nsysflow.regions import Region, region
from nsysflow.workloads.config import Config, Work

LIMIT: Final = 4.0
"""The largest magnitude that a layer may give."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Attributes:
    rows: of the tensors.
    width: of the tensors.
    layers: of a step.
    """

    rows: int
    width: int
    layers: int


def graph_break(config: Config[Options]) -> Work:
    """Put rows through the layers, and in the next step what came out."""
    options = config.options
    whole = config.variant == "fullgraph"
    layer = torch.compile(
        limited_by_factor if whole else limited_if_large,
        fullgraph=whole,
        dynamic=False,
        backend="inductor" if config.cuda else "eager",
    )
    rows = torch.randn(options.rows, options.width, **config.placed)

    def step(_batch: int) -> None:
        nonlocal rows
        with region(Region.FORWARD):
            for _ in range(options.layers):
                rows = layer(rows)

    def result() -> Tensor:
        return rows

    return Work(step=step, result=result, note="" if config.cuda else "compiled to eager code here")


def limited_if_large(rows: Tensor) -> Tensor:
    """What grew too large is scaled down, if the GPU says that it did."""
    grown = rows + functional.gelu(rows)
    largest = grown.abs().amax()
    if largest > LIMIT:
        grown = grown * (LIMIT / largest)
    return grown


def limited_by_factor(rows: Tensor) -> Tensor:
    """What grew too large is scaled down, by the GPU alone."""
    grown = rows + functional.gelu(rows)
    largest = grown.abs().amax()
    return grown * (LIMIT / largest).clamp(max=1)
