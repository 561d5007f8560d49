"""Layer norm, ReLU and a skip connection: three kernels, or one.

Each of the three kernels reads what the previous one wrote: 7 tensors go through memory instead of
3. The GPU is never idle, so the trace differs only in the number of kernels and their time.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from nsysflow.runtime.regions import Region, region
from nsysflow.workloads.common.training import Config, Work

Layer = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Takes rows, gain, bias and the tensor to add; returns the new rows."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `fusion`.

    Attributes:
        rows: rows of the tensors.
        cols: columns of the tensors, the dimension that is normalised.
        layers: layers per step.
    """

    rows: int
    cols: int
    layers: int


def fusion(config: Config[Options]) -> Work:
    """Pass rows through the layers; each step starts with the previous step's output."""
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
    return Work(step=step, result=result, note="as eager: no GPU here" if as_eager else "")


def eager(rows: Tensor, gain: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    """The layer as it is usually written: three kernels."""
    return functional.relu(functional.layer_norm(rows, gain.shape, gain, bias)) + skip


def _layer(variant: str) -> Layer:
    if variant == "compile":
        return torch.compile(eager, fullgraph=True, dynamic=False)
    if variant == "fused":
        from nsysflow.kernels.layernorm_relu_add import layernorm_relu_add  # needs Triton

        return layernorm_relu_add
    return eager
