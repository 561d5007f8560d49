"""How `sum_many` is benchmarked."""

from typing import Final

from nsysflow.kernels.bench.problem import (
    Backend,
    Benchmark,
    Cost,
    Outputs,
    Problem,
    Random,
    Shape,
    Tolerance,
)
from nsysflow.kernels.sum_many import sum_many, sum_many_bytes, sum_many_ref, sum_table


def make(shape: Shape, random: Random) -> Problem:
    """A problem: the sums of many tensors of 0.5 to 1.5 times `KiB`."""
    mean = shape["KiB"] * 1024 // random.dtype.itemsize
    sizes = (mean // 2 + random.below(mean + 1, shape["tensors"])).tolist()
    drawn = random.normal(sum(sizes), mean=1.0)  # one draw: thousands of draws took 0.2 s
    tensors = tuple(tensor.clone() for tensor in drawn.split(sizes))
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


BENCHMARK: Final = Benchmark(
    make=make,
    shape={"tensors": 4096, "KiB": 16},
    toy={"tensors": 5, "KiB": 1},
    swept=(("tensors",), ("KiB",)),
)
