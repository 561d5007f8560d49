"""The sum of each of 4096 tensors, such as a model's gradients: in a loop, or all at once.

The loop launches one kernel per tensor, which takes the host longer than the GPU. `_foreach` takes
about a hundred tensors per launch, but the host still creates one result per tensor: 1.7 ms for
4096 of them under nsys on an H200 (2026-11-20). The fused kernel takes all and returns one tensor.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from nsysflow.runtime.regions import Region, region
from nsysflow.workloads.common.training import Config, Matmuls, Work

BELOW: Final = 8
"""The tensors hold whole numbers below this, so float32 adds them exactly in any order."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `sum_many`.

    Attributes:
        tensors: number of tensors to sum.
        numel: their mean size; sizes are 0.5 to 1.5 times it.
        matmuls: long kernels before the sums, during which the first sums are launched.
        size: rows and columns of the matrices.
    """

    tensors: int
    numel: int
    matmuls: int
    size: int


def sum_many(config: Config[Options]) -> Work:
    """Multiply, then sum each tensor; the sums accumulate over the steps."""
    options = config.options
    matmuls = Matmuls(config, options.size)
    sizes = torch.randint(options.numel // 2, options.numel * 3 // 2 + 1, (options.tensors,))
    tensors = [torch.randint(BELOW, (size,)).to(**config.placed) for size in sizes.tolist()]
    fused_on_cpu = config.variant == "fused" and not config.cuda
    sums = _sums("loop" if fused_on_cpu else config.variant, tensors)
    total = torch.zeros(options.tensors, device=config.on)

    def step(_batch: int) -> None:
        with region(Region.FORWARD):
            matmuls.launch(options.matmuls)
        with region(Region.METRICS):
            total.add_(sums())

    def result() -> Tensor:
        return total

    return Work(step=step, result=result, note="as loop: no GPU here" if fused_on_cpu else "")


def _sums(variant: str, tensors: list[Tensor]) -> Callable[[], Tensor]:
    """The function that sums each of `tensors` and returns (tensors,) float32."""

    def loop() -> Tensor:
        return torch.stack([tensor.sum(dtype=torch.float32) for tensor in tensors])

    def foreach() -> Tensor:
        # there is no _foreach_sum; for numbers >= 0 the 1-norm is the sum
        return torch.stack(torch._foreach_norm(tensors, 1, dtype=torch.float32))

    if variant == "fused":
        from nsysflow.kernels import sum_many as kernel  # needs Triton

        table = kernel.sum_table(tensors)
        return lambda: kernel.sum_many(table)
    return loop if variant == "loop" else foreach
