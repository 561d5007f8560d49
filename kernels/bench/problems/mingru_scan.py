"""How `mingru_scan` is benchmarked."""

from typing import Final

from nsysflow.kernels.bench.problem import Benchmark, Cost, Problem, Random, Shape, Tolerance
from nsysflow.kernels.bench.problems.rollout import SHAPE, TOY, only
from nsysflow.kernels.mingru_scan import (
    mingru_scan,
    mingru_scan_backward_bytes,
    mingru_scan_bytes,
    mingru_scan_ref,
)

FLOPS: Final = 18
"""Per step and channel: three sigmoids of 4, one addition for c, four for h, one for out."""
BACKWARD_FLOPS: Final = 35
"""Per step and channel: gates and h again 17, d 2, dproj 4, c' 2, dhidden 2, dgate 6, dh 2."""


def make(shape: Shape, random: Random) -> Problem:
    """A problem: mb recurrences of T steps and H channels, with gradients for inputs and state."""
    mb, steps, width = shape["mb"], shape["T"], shape["H"]
    combined, state = random.normal(mb, steps, 3 * width), random.normal(mb, 1, width)
    elements = mb * steps * width
    forward = Cost(bytes=mingru_scan_bytes(combined, state), flops=FLOPS * elements)
    backward = Cost(
        bytes=mingru_scan_backward_bytes(combined, state), flops=BACKWARD_FLOPS * elements
    )
    both = Cost(bytes=forward.bytes + backward.bytes, flops=(FLOPS + BACKWARD_FLOPS) * elements)
    return Problem(
        inputs=(combined, state),
        reference=mingru_scan_ref,
        kernels={"triton": mingru_scan},
        wanted=(0, 1),
        slopes=(random.normal(mb, steps, width), random.normal(mb, 1, width)),
        tolerance=Tolerance(relative=1e-5, absolute=1e-5),
        cost={"fwd": forward, "bwd": backward, "fwd+bwd": both},
    )


BENCHMARK: Final = Benchmark(
    make=make,
    shape=only(SHAPE, "mb", "T", "H"),
    # 11 steps are two chunks of bf16 and three of float32; the interpreter runs them one by one
    toy={**only(TOY, "T", "H"), "mb": 2},
    swept=(("mb",), ("T",)),
    directions=("fwd", "bwd", "fwd+bwd"),
)
