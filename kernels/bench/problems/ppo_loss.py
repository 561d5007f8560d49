"""How `ppo_loss` is benchmarked: forward without gradient, and both directions together.

Its forward already computes the gradient, which backward only scales. Backward alone would look too
fast.
"""

from typing import Final

import torch
from torch import Tensor

from nsysflow.kernels.bench.problem import Benchmark, Cost, Problem, Random, Shape, Tolerance
from nsysflow.kernels.bench.problems.rollout import SHAPE, TOY, only
from nsysflow.kernels.ppo_loss import (
    ppo_loss,
    ppo_loss_backward_bytes,
    ppo_loss_bytes,
    ppo_loss_ref,
)

CLIP: Final = 0.1
MARGIN: Final = 1e-4
"""Closer to a jump of the gradient, float32 and float64 may be on different sides of it."""


def away_from_jumps(
    predictions: Tensor, actions: Tensor, logprobs: Tensor, values: Tensor, returns: Tensor
) -> None:
    """Replace the old policy and value by the new ones in rows close to a jump of the gradient."""
    logits, value = predictions[:, :-1].double(), predictions[:, -1].double()
    chosen = torch.log_softmax(logits, 1).gather(1, actions[:, None])[:, 0]
    near = (((chosen - logprobs.double()).exp() - 1).abs() - CLIP).abs() < MARGIN
    logprobs.copy_(torch.where(near, chosen.to(logprobs.dtype), logprobs))
    moved = value - values.double()
    error = value - returns.double()
    held = error - moved + moved.clamp(-CLIP, CLIP)
    near = ((moved.abs() - CLIP).abs() < MARGIN) | ((error.abs() - held.abs()).abs() < MARGIN)
    values.copy_(torch.where(near, value.to(values.dtype), values))


def make(shape: Shape, random: Random) -> Problem:
    """A problem: the loss of mb segments of T steps. Advantages and targets are float32."""
    rows, actions_n = shape["mb"] * shape["T"], shape["A"]
    predictions = random.normal(rows, actions_n + 1)
    actions = random.below(actions_n, rows)
    chosen = torch.log_softmax(predictions[:, :-1].float(), 1).gather(1, actions[:, None])[:, 0]
    logprobs = (chosen + random.normal(rows, scale=0.1)).to(random.dtype)
    advantages, returns = random.normal(rows).float(), random.normal(rows).float()
    weights = random.normal(shape["mb"], scale=0.3).float().exp()
    values = predictions[:, -1] + random.normal(rows, scale=0.1)
    away_from_jumps(predictions, actions, logprobs, values, returns)
    inputs = (predictions, actions, logprobs, advantages, weights, values, returns)

    # per logit: compare, subtract, exponent, two sums, product; per row: about 40 for both losses
    forward = Cost(bytes=ppo_loss_bytes(*inputs), flops=rows * (6 * actions_n + 40))
    both = Cost(
        bytes=forward.bytes + ppo_loss_backward_bytes(predictions),
        flops=forward.flops + rows * (9 * actions_n + 10),
    )
    return Problem(
        inputs=inputs,
        reference=lambda *given: (ppo_loss_ref(*given),),
        kernels={"triton": lambda *given: (ppo_loss(*given),)},
        wanted=(0,),
        slopes=(torch.tensor(2.0, device=random.device),),
        tolerance=Tolerance(relative=1e-4, absolute=1e-4),
        cost={"fwd": forward, "fwd+bwd": both},
    )


BENCHMARK: Final = Benchmark(
    make=make,
    shape=only(SHAPE, "mb", "T", "A"),
    toy=only(TOY, "mb", "T", "A"),
    swept=(("mb",), ("T",)),
    directions=("fwd", "fwd+bwd"),
)
