"""How `copy` is benchmarked. Its speed is known, so it checks the benchmark itself."""

from typing import Final

from nsysflow.kernels.bench.copy import copy
from nsysflow.kernels.bench.problem import Benchmark, Cost, Problem, Random, Shape, Tolerance


def make(shape: Shape, random: Random) -> Problem:
    """A problem: a copy of `KiB`."""
    x = random.normal(shape["KiB"] * 1024 // random.dtype.itemsize)
    return Problem(
        inputs=(x,),
        reference=lambda given: (given.clone(),),
        kernels={"triton": lambda given: (copy(given),)},
        tolerance=Tolerance(relative=0, absolute=0),
        cost={"fwd": Cost(bytes=2 * x.nbytes, flops=0)},
    )


BENCHMARK: Final = Benchmark(
    make=make,
    shape={"KiB": 262_144},
    toy={"KiB": 3},
    swept=(),
)
