"""How `advantage` is benchmarked."""

from typing import Final

from nsysflow.kernels.advantage import advantage, advantage_bytes, advantage_ref
from nsysflow.kernels.bench.problem import Benchmark, Cost, Problem, Random, Shape, Tolerance
from nsysflow.kernels.bench.problems.rollout import SHAPE, TOY, only, steps_of

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
    shape=only(SHAPE, "S", "T"),
    toy=only(TOY, "S", "T"),
    swept=(("S",), ("T",)),
)
