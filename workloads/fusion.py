"""Layer norm, ReLU and a skip connection: a kernel each, or one for all three.

Each kernel reads what the one before it wrote: 7 tensors go through memory, where 3 would do.
No time is idle, so what the trace shows is the number of kernels and their time.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from nsysflow.regions import Region, region
from nsysflow.workloads.config import Config, Work

Layer = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""From rows, gain, bias and what is added to the next rows."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Attributes:
    rows: of the tensors.
    cols: of the tensors, over which is normalised.
    layers: of a step.
    """

    rows: int
    cols: int
    layers: int


def fusion(config: Config[Options]) -> Work:
    """Put rows through the layers, and in the next step what came out."""
    options = config.options
    layer = _layer(config.variant) if config.cuda else eager
    skip = torch.randn(options.rows, options.cols, **config.placed)
    gain, bias = torch.randn(2, options.cols, **config.placed)
    rows = torch.randn_like(skip)

    def step(_batch: int) -> None:
        nonlocal rows
        with region(Region.FORWARD):
            for _ in range(options.layers):
                rows = layer(rows, gain, bias, skip)

    def result() -> Tensor:
        return rows

    as_eager = config.variant != "eager" and not config.cuda
    return Work(step=step, result=result, note="as eager: no Triton here" if as_eager else "")


def eager(rows: Tensor, gain: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    """The layer as one writes it: three kernels."""
    return functional.relu(functional.layer_norm(rows, gain.shape, gain, bias)) + skip


def _layer(variant: str) -> Layer:
    if variant == "compile":
        return torch.compile(eager, fullgraph=True, dynamic=False)
    if variant == "fused":
        from nsysflow.kernels.layernorm_relu_add import layernorm_relu_add  # needs Triton

        return layernorm_relu_add
    return eager
