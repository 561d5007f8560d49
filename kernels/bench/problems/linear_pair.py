"""How `linear_pair` is benchmarked: as the encoder and the first layer's product of the policy."""

from typing import Final

from nsysflow.kernels.bench.problem import (
    Benchmark,
    Cost,
    Problem,
    Random,
    Shape,
    Tolerance,
)
from nsysflow.kernels.bench.problems.rollout import SHAPE, TOY, only
from nsysflow.kernels.linear_pair import linear_pair, linear_pair_bytes, linear_pair_ref


def make(shape: Shape, random: Random) -> Problem:
    """A problem: mb segments of T steps of D observations, to H and then to 3H numbers."""
    rows, width, middle = shape["mb"] * shape["T"], shape["D"], shape["H"]
    x = random.normal(rows, width)
    first = random.normal(middle, width, scale=width**-0.5)
    second = random.normal(3 * middle, middle, scale=middle**-0.5)
    return Problem(
        inputs=(x, first, second),
        reference=lambda *given: (linear_pair_ref(*given),),
        kernels={"triton": lambda *given: (linear_pair(*given),)},
        # the first product is rounded, too
        tolerance=Tolerance(relative=1e-5, absolute=0.01 if random.dtype.itemsize == 2 else 1e-5),
        cost={
            "fwd": Cost(
                bytes=linear_pair_bytes(x, first, second),
                flops=2 * rows * middle * (width + 3 * middle),
            )
        },
        unit="bf16" if random.dtype.itemsize == 2 else "tf32",
    )


BENCHMARK: Final = Benchmark(
    make=make,
    shape=only(SHAPE, "mb", "T", "D", "H"),
    toy=only(TOY, "mb", "T", "D", "H"),
    swept=(("mb",), ("T",)),
)
