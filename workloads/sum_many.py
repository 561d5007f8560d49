"""A figure of each of 4096 tensors, as of a model's gradients: by a loop, or for all at once.

The loop launches a kernel a tensor, which takes the host longer than the GPU. `_foreach` takes
some hundred tensors a launch, but the host still makes a result for each (1.7 ms for 4096 of them
under nsys on an H200, 2026-11-20). The fused kernel takes all and gives one tensor.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from nsysflow.regions import Region, region
from nsysflow.workloads.config import Config, Work
from nsysflow.workloads.matmuls import Matmuls

BELOW: Final = 8
"""Of what the tensors hold: whole numbers, so that float32 adds them exactly in any order."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Attributes:
    tensors: how many are summed.
    numel: their mean size; each has half to three halves of it.
    matmuls: long kernels before the sums, behind which a few launches are hidden.
    size: rows and columns of the matrices they multiply.
    """

    tensors: int
    numel: int
    matmuls: int
    size: int


def sum_many(config: Config[Options]) -> Work:
    """Multiply, then sum each of the tensors; add up the sums over the steps."""
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

    return Work(step=step, result=result, note="as loop: no Triton here" if fused_on_cpu else "")


def _sums(variant: str, tensors: list[Tensor]) -> Callable[[], Tensor]:
    """What sums each of `tensors`: (tensors,) float32."""

    def loop() -> Tensor:
        return torch.stack([tensor.sum(dtype=torch.float32) for tensor in tensors])

    def foreach() -> Tensor:
        # there is no _foreach_sum; of what is never negative the 1-norm is the sum
        return torch.stack(torch._foreach_norm(tensors, 1, dtype=torch.float32))

    if variant == "fused":
        from nsysflow.kernels import sum_many as kernel  # needs Triton, which CPUs may lack

        table = kernel.sum_table(tensors)
        return lambda: kernel.sum_many(table)
    return loop if variant == "loop" else foreach
