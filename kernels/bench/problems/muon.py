"""muon, from weights and momenta of zero: what the weights hold is the step."""

from typing import Final

import torch
from torch import Tensor

from nsysflow.kernels.bench.problem import Cost, Kernel, Outputs, Problem, Random, Shape, Tolerance
from nsysflow.kernels.bench.problems.rollout import SHAPE, TOY, only
from nsysflow.kernels.muon import muon, muon_bytes, muon_flops, muon_ref, muon_table

LR: Final = 0.0025


def make(shape: Shape, random: Random) -> Problem:
    """A step of the model's three matrices; bf16 gradients come with bf16 copies of the weights."""
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

    def kernel(*_: Tensor) -> Outputs:
        muon(table, lr)
        return (*table.weights, *table.momenta, *table.working)

    elements = sum(weight.numel() for weight in weights)
    # and about 10 an element: its square, clip, momentum, u, norm and update
    flops = sum(muon_flops(*side) for side in sides) + 10 * elements
    return Problem(
        inputs=tuple(gradients),
        reference=reference,
        kernels={"triton": kernel},
        # float64 does not round to bf16 as the definition does: in float32 that is 0.6 % of the
        # step as a root mean square, and 4.7 % at the worst element of 66 000
        tolerance=Tolerance(relative=0.0, absolute=0.1),
        cost={"fwd": Cost(bytes=muon_bytes(table), flops=flops)},
        unit="bf16",
        poison=tuple(working),
    )


KERNEL: Final = Kernel(
    make=make,
    shape=only(SHAPE, "D", "A", "H"),
    toy=only(TOY, "D", "A", "H"),
    swept=(("D",),),  # wider than 128 is not for this kernel
)
