"""copy: a kernel whose speed is known, to tell whether the benchmark measures right."""

from typing import Final

from nsysflow.kernels.bench.copying import copy
from nsysflow.kernels.bench.problem import Cost, Kernel, Problem, Random, Shape, Tolerance


def make(shape: Shape, random: Random) -> Problem:
    """A copy of `KiB`."""
    x = random.normal(shape["KiB"] * 1024 // random.dtype.itemsize)
    return Problem(
        inputs=(x,),
        reference=lambda given: (given.clone(),),
        kernels={"triton": lambda given: (copy(given),)},
        tolerance=Tolerance(relative=0, absolute=0),
        cost={"fwd": Cost(bytes=2 * x.nbytes, flops=0)},
    )


KERNEL: Final = Kernel(
    make=make,
    shape={"KiB": 262_144},
    toy={"KiB": 3},
    swept=(),
    dtypes=("float",),
    compiles=False,
)
