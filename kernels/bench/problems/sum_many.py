"""sum_many."""

from typing import Final

from nsysflow.kernels.bench.problem import (
    Backend,
    Cost,
    Kernel,
    Outputs,
    Problem,
    Random,
    Shape,
    Tolerance,
)
from nsysflow.kernels.sum_many import sum_many, sum_many_bytes, sum_many_ref, sum_table


def make(shape: Shape, random: Random) -> Problem:
    """The sums of many tensors, of half to three halves of `KiB` each."""
    mean = shape["KiB"] * 1024 // random.dtype.itemsize
    sizes = (mean // 2 + random.below(mean + 1, shape["tensors"])).tolist()
    drawn = random.normal(sum(sizes), mean=1.0)  # one draw: thousands took 0.2 s a problem
    tensors = tuple(each.clone() for each in drawn.split(sizes))
    table = sum_table(tensors)

    def kernel(backend: Backend) -> Outputs:
        return (sum_many(table, backend=backend),)

    return Problem(
        inputs=tensors,
        reference=lambda *given: (sum_many_ref(given),),
        kernels={"triton": lambda *_: kernel("triton"), "cuda": lambda *_: kernel("cuda")},
        tolerance=Tolerance(relative=1e-5, absolute=0),
        cost={"fwd": Cost(bytes=sum_many_bytes(table), flops=sum(sizes))},
    )


KERNEL: Final = Kernel(
    make=make,
    shape={"tensors": 4096, "KiB": 16},
    toy={"tensors": 5, "KiB": 1},
    swept=(("tensors",), ("KiB",)),
    backends=("triton", "cuda"),
    compiles=False,  # a graph of 4096 inputs, each guarded, for as many launches as before
)
