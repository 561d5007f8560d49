"""How `select_copy` is benchmarked."""

from typing import Final

from nsysflow.kernels.bench.problem import (
    Benchmark,
    Cost,
    Outputs,
    Problem,
    Random,
    Shape,
    Tolerance,
)
from nsysflow.kernels.bench.problems.rollout import SEGMENTS, SHAPE, TOY, rollout_of
from nsysflow.kernels.prio import Draws
from nsysflow.kernels.select_copy import (
    Minibatch,
    empty_minibatch,
    select_copy,
    select_copy_bytes,
    select_copy_ref,
)


def make(shape: Shape, random: Random) -> Problem:
    """A problem: mb of S segments, copied. Advantages are float32, as `advantage` writes them."""
    size = (shape["S"], shape["T"])
    mb = shape["mb"]
    rollout = rollout_of(shape, random, random.normal(*size), random.normal(*size).float())
    weight = random.normal(mb).float().exp()
    draws = Draws(rows=random.below(shape["S"], mb), weight=weight)
    out = empty_minibatch(rollout, mb, (mb, 1, shape["H"]), state_dtype=random.dtype)

    def reference() -> Outputs:
        return tensors_of(select_copy_ref(rollout, draws, out.state))

    return Problem(
        inputs=(),
        reference=reference,
        kernels={"triton": lambda: tensors_of(select_copy(rollout, draws, out=out))},
        expected=lambda _found: reference(),
        tolerance=Tolerance(relative=0, absolute=0),
        cost={
            "fwd": Cost(bytes=select_copy_bytes(rollout, draws, out.state), flops=mb * shape["T"])
        },
        poison=tuple(tensor for tensor in tensors_of(out) if tensor.is_floating_point()),
    )


def tensors_of(minibatch: Minibatch) -> Outputs:
    """The tensors of a minibatch, listed by name: torch.compile cannot trace `vars`."""
    copied = (minibatch.obs, minibatch.actions, minibatch.logprobs, minibatch.values)
    made = (minibatch.advantages, minibatch.returns, minibatch.weight, minibatch.state)
    return (*copied, *made)


BENCHMARK: Final = Benchmark(make=make, shape=SHAPE, toy=TOY, swept=(SEGMENTS, ("T",)))
