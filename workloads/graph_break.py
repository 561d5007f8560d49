"""A value read from the GPU inside a compiled function, or the same without reading it.

`if largest > LIMIT` needs the number on the host. torch.compile ends its graph there, the host
waits for the GPU, and the rest is launched only once the GPU has run out of work. With a scaling
factor instead, 1 where nothing is too large, the function stays one graph and the host never waits.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from nsysflow.runtime.regions import Region, region
from nsysflow.workloads.common.training import Config, Work

LIMIT: Final = 4.0
"""The largest magnitude that a layer may return."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `graph_break`.

    Attributes:
        rows: rows of the tensors.
        width: width of the tensors.
        layers: layers per step.
    """

    rows: int
    width: int
    layers: int


def graph_break(config: Config[Options]) -> Work:
    """Pass rows through the layers; each step starts with the previous step's output."""
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

    note = "" if config.cuda else "compiled to eager code on a CPU"
    return Work(step=step, result=result, note=note)


def limited_if_large(rows: Tensor) -> Tensor:
    """Scale down to the limit, after the host has asked the GPU whether that is needed."""
    grown = rows + functional.gelu(rows)
    largest = grown.abs().amax()
    if largest > LIMIT:
        grown = grown * (LIMIT / largest)
    return grown


def limited_by_factor(rows: Tensor) -> Tensor:
    """Scale down to the limit without asking: the GPU computes the factor."""
    grown = rows + functional.gelu(rows)
    largest = grown.abs().amax()
    return grown * (LIMIT / largest).clamp(max=1)
