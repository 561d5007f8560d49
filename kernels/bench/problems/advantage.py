"""How `advantage` is benchmarked."""

from typing import Final

from nsysflow.kernels.advantage import advantage, advantage_bytes, advantage_ref
from nsysflow.kernels.bench.problem import (
    ROLLOUT_SHAPE,
    ROLLOUT_TOY,
    Benchmark,
    Cost,
    Problem,
    Random,
    Shape,
    Tolerance,
    only,
    steps_of,
)

FLOPS: Final = 12
"""Per step: n, two clips, five for delta, four for A."""


def make(shape: Shape, random: Random) -> Problem:
    """A problem: advantages of S segments of T steps."""
    inputs = steps_of(shape, random)
    return Problem(
        inputs=inputs,
        reference=lambda *given: (advantage_ref(*given),),
        kernels={
            "triton": lambda *given: (advantage(*given, backend="triton"),),
            "cuda": lambda *given: (advantage(*given, backend="cuda"),),
        },
        tolerance=Tolerance(relative=1e-5, absolute=1e-5),
        cost={"fwd": Cost(bytes=advantage_bytes(*inputs), flops=FLOPS * inputs[0].numel())},
    )


BENCHMARK: Final = Benchmark(
    make=make,
    shape=only(ROLLOUT_SHAPE, "S", "T"),
    toy=only(ROLLOUT_TOY, "S", "T"),
    swept=(("S",), ("T",)),
)
