"""How `muon` is benchmarked: from zero weights and momenta, so the weights are the step."""

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from nsysflow.kernels.arguments import Backend
from nsysflow.kernels.bench.problem import (
    Benchmark,
    Cost,
    Outputs,
    Problem,
    Random,
    Shape,
    Tolerance,
)
from nsysflow.kernels.bench.problems.rollout import SHAPE, TOY, only
from nsysflow.kernels.muon import muon, muon_bytes, muon_flops, muon_ref, muon_table

LR: Final = 0.0025


def make(shape: Shape, random: Random) -> Problem:
    """A problem: a step of the policy's three matrices, with bf16 copies for bf16 gradients."""
    width = shape["H"]
    sides = [(width, shape["D"]), (3 * width, width), (shape["A"] + 1, width)]
    gradients = [random.normal(*side) for side in sides]
    weights = [torch.zeros(side, device=random.device) for side in sides]
    working = [weight.bfloat16() for weight in weights] if random.dtype == torch.bfloat16 else []
    table = muon_table(weights, gradients, working=working)
    zeros = [torch.zeros_like(weight) for weight in weights]
    lr = torch.tensor([LR], device=random.device)

    def reference(*given: Tensor) -> Outputs:
        exact = given[0].dtype == torch.float64
        start = [zero.double() if exact else zero for zero in zeros]
        stepped, momenta = muon_ref(start, given, start, LR)
        copies = [weight if exact else weight.bfloat16() for weight in stepped] if working else []
        return (*stepped, *momenta, *copies)

    def kernel(backend: Backend) -> Callable[..., Outputs]:
        def step(*_: Tensor) -> Outputs:
            muon(table, lr, backend=backend)
            return (*table.weights, *table.momenta, *table.working)

        return step

    elements = sum(weight.numel() for weight in weights)
    # and about 10 per element: its square, clip, momentum, u, norm and update
    flops = sum(muon_flops(*side) for side in sides) + 10 * elements
    return Problem(
        inputs=tuple(gradients),
        reference=reference,
        kernels={"triton": kernel("triton"), "cuda": kernel("cuda")},
        # float64 has none of the definition's roundings to bf16. In float32 they are 0.6 % of the
        # step as a root mean square, and 4.7 % for the worst of 66 000 elements
        tolerance=Tolerance(relative=0.0, absolute=0.1),
        cost={"fwd": Cost(bytes=muon_bytes(table), flops=flops)},
        unit="bf16",
        poison=tuple(working),
    )


BENCHMARK: Final = Benchmark(
    make=make,
    shape=only(SHAPE, "D", "A", "H"),
    toy=only(TOY, "D", "A", "H"),
    swept=(("D",),),  # the kernel takes at most 128 columns
)
