"""How `narrow_linear` is benchmarked: as the decoder of the policy."""

from typing import Final

from nsysflow.kernels.bench.problem import Benchmark, Cost, Problem, Random, Shape, Tolerance
from nsysflow.kernels.bench.problems.rollout import SHAPE, TOY, only
from nsysflow.kernels.narrow_linear import (
    narrow_linear,
    narrow_linear_backward_bytes,
    narrow_linear_bytes,
    narrow_linear_ref,
)


def make(shape: Shape, random: Random) -> Problem:
    """A problem: mb segments of T steps of width H, mapped to A logits and a value."""
    rows, outputs = shape["mb"] * shape["T"], shape["A"] + 1
    x, weight = random.normal(rows, shape["H"]), random.normal(outputs, shape["H"])
    product = 2 * rows * outputs * shape["H"]
    forward = Cost(bytes=narrow_linear_bytes(x, weight), flops=product)
    backward = Cost(bytes=narrow_linear_backward_bytes(x, weight), flops=2 * product)
    both = Cost(bytes=forward.bytes + backward.bytes, flops=3 * product)
    return Problem(
        inputs=(x, weight),
        reference=lambda *given: (narrow_linear_ref(*given),),
        kernels={"triton": lambda *given: (narrow_linear(*given),)},
        wanted=(0, 1),
        slopes=(random.normal(rows, outputs),),
        tolerance=Tolerance(relative=1e-5, absolute=1e-5),
        cost={"fwd": forward, "bwd": backward, "fwd+bwd": both},
        unit="bf16" if random.dtype.itemsize == 2 else "tf32",
    )


BENCHMARK: Final = Benchmark(
    make=make,
    shape=only(SHAPE, "mb", "T", "A", "H"),
    toy=only(TOY, "mb", "T", "A", "H"),
    swept=(("mb",), ("T",)),
    directions=("fwd", "bwd", "fwd+bwd"),
)
