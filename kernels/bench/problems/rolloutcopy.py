"""How `rolloutcopy` is benchmarked: advantage, prio and select_copy, one after the other."""

from typing import Final

from torch import Tensor

from nsysflow.kernels.advantage import advantage, advantage_bytes, advantage_ref
from nsysflow.kernels.bench.problem import (
    Benchmark,
    Cost,
    Outputs,
    Problem,
    Random,
    Shape,
    Tolerance,
)
from nsysflow.kernels.bench.problems.advantage import FLOPS
from nsysflow.kernels.bench.problems.prio import drawing, drawn_ref, expected_draws
from nsysflow.kernels.bench.problems.rollout import SEGMENTS, SHAPE, TOY, rollout_of, steps_of
from nsysflow.kernels.bench.problems.select_copy import tensors_of
from nsysflow.kernels.prio import Draws, prio_bytes
from nsysflow.kernels.select_copy import (
    empty_minibatch,
    select_copy,
    select_copy_bytes,
    select_copy_ref,
)


def make(shape: Shape, random: Random) -> Problem:
    """A problem: a minibatch of mb segments from S segments of T steps."""
    inputs = steps_of(shape, random)
    mb = shape["mb"]
    advantages = advantage_ref(*inputs)  # the kernel writes its float32 result here
    rollout = rollout_of(shape, random, inputs[0], advantages)
    out = empty_minibatch(rollout, mb, (mb, 1, shape["H"]), state_dtype=random.dtype)
    draw = drawing(shape, random)

    def reference(*given: Tensor) -> Outputs:
        advantages.copy_(advantage_ref(*given))
        draws = drawn_ref(advantages, mb)
        copied = tensors_of(select_copy_ref(rollout, draws, out.state))
        return (advantages, draws.rows, *copied)

    def kernel(*given: Tensor) -> Outputs:
        advantage(*given, out=advantages)
        draws = draw(advantages)
        return (advantages, draws.rows, *tensors_of(select_copy(rollout, draws, out=out)))

    def expected(outputs: Outputs) -> Outputs:
        exact = advantage_ref(*(tensor.double() for tensor in inputs))
        rows, weight = expected_draws(outputs[0], outputs[1])
        draws = Draws(rows=rows.clamp(0, shape["S"] - 1), weight=weight)
        return (exact, rows, *tensors_of(select_copy_ref(rollout, draws, out.state)))

    draws = Draws(rows=random.below(shape["S"], mb), weight=random.normal(mb).float())
    moved = (
        advantage_bytes(*inputs)
        + prio_bytes(advantages, mb)
        + select_copy_bytes(rollout, draws, out.state)
    )
    return Problem(
        inputs=inputs,
        reference=reference,
        kernels={"triton": kernel},
        expected=expected,
        tolerance=Tolerance(relative=1e-5, absolute=1e-5),
        cost={"fwd": Cost(bytes=moved, flops=(FLOPS + 2) * advantages.numel() + mb * shape["T"])},
        poison=tuple(tensor for tensor in tensors_of(out) if tensor.is_floating_point()),
    )


BENCHMARK: Final = Benchmark(make=make, shape=SHAPE, toy=TOY, swept=(SEGMENTS, ("T",)))
