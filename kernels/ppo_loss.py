"""PPO's clipped loss for discrete actions, and its gradient.

(Schulman et al. 2017, arXiv:1707.06347)

    predictions (N, A+1) = [logits, value]; actions, logprobs, advantages, values, returns (N,) and
    weights (N / T,), one per T rows -> loss, the mean over N rows of

        policy + value_weight·value_loss - entropy_weight·entropy

    a = (advantage - mean) / (std + 1e-8), mean and unbiased std over the N rows
    r = exp(logprob - logprobs)   policy = max(-w·a·r, -w·a·clip(r, 1 ± clip))
    value_loss = ½·max((v - R)², (values + clip(v - values, ± value_clip) - R)²)
    entropy = -sum_j p_j log p_j

Its gradient for each row, divided by N. g = 0 where the clipped policy term is larger, else -w·a·r.
e = 0 where v is outside its range and the clipped error is larger, else v - R:

    dlogit_j = g·([j = action] - p_j) + entropy_weight·p_j·(log p_j + entropy)   dv = value_weight·e

At N = 32 768, A = 4, T = 64 in bf16 it reads 0.99 MB (int64 actions 0.26, float32 advantages and
returns 0.26, predictions 0.33) and writes 0.33 MB of gradient: 0.3 us at 4.3 TB/s. So launches and
latencies dominate, and there are only three launches, two forward and one backward:

1. Mean and sum of squares around it for each 4096 advantages (8 programs), because every row needs
   the mean of all advantages. This launch also resets the counter of (2), which therefore needs
   neither its own launch nor memory that outlives the call.
2. 256 rows per program, so 128 programs on 132 SMs; one row per thread, with its A logits in
   registers. It first computes what needs no advantage, then combines the moments from (1). Loss
   and gradient use the same exponentials. The last program to finish adds the sums in order.
3. The gradient for a loss of 1, kept in float32 (0.66 MB), times the incoming scale, rounded once.

From Hopper on, (2) and (3) begin while the previous launch runs (programmatic dependent launch).
They wait for its end before they first need its results and before they write anything. Sums have a
fixed order and the only atomic is an integer, so results repeat bitwise.
"""

from functools import cache
from typing import Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nsysflow.kernels import ppo_loss_kernels
from nsysflow.kernels.arguments import require
from nsysflow.kernels.integers import cdiv, next_power_of_2

ACTIONS_MAX: Final = 64
"""A row's logits and their exponentials are in the registers of one thread, at most 255."""
CHUNK: Final = 4096
"""Advantages per program of the first launch: 16 per thread of 8 warps, four 16-byte loads."""
ROWS: Final = 256
"""Rows per program of the second, one per thread of 8 warps: 32 768 rows are one program per SM."""
SCALED: Final = 1024
"""Elements per program of the third: 8 per thread of 4 warps."""


@cache
def _can_overlap(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


def _overlap(device: torch.device) -> dict[str, bool]:
    """The options that let a launch begin while the previous one runs, if the GPU can."""
    able = _can_overlap(device)
    return {"OVERLAP": able, "launch_pdl": able}


def _check(
    predictions: Tensor,
    actions: Tensor,
    logprobs: Tensor,
    advantages: Tensor,
    weights: Tensor,
    values: Tensor,
    returns: Tensor,
) -> None:
    """Refuse arguments that the kernels would misread.

    Raises:
        ValueError: a shape, dtype, device or stride is wrong.
    """
    require("predictions", predictions, (None, None))
    rows, width = predictions.shape
    if not 2 <= width <= ACTIONS_MAX + 1:
        raise ValueError(f"predictions must have 2 to {ACTIONS_MAX + 1} columns, but has {width}")
    device = predictions.device
    whole = (torch.int32, torch.int64, torch.float64)
    require("actions", actions, (rows,), dtypes=whole, device=device)
    require("logprobs", logprobs, (rows,), device=device)
    require("advantages", advantages, (rows,), device=device)
    require("weights", weights, (None,), device=device)
    require("values", values, (rows,), device=device)
    require("returns", returns, (rows,), device=device)
    if rows > 0 and (len(weights) == 0 or rows % len(weights) != 0):
        raise ValueError(f"weights must divide {rows} rows evenly, but are {len(weights)}")


def _run_forward(
    inputs: tuple[Tensor, ...], factors: tuple[float, ...], gradient: Tensor | None
) -> Tensor:
    predictions, advantages = inputs[0], inputs[3]
    rows, width = predictions.shape
    loss = predictions.new_empty((), dtype=torch.float32)
    if rows == 0:
        return loss.fill_(torch.nan)
    chunks, programs = cdiv(rows, CHUNK), cdiv(rows, ROWS)
    moments = predictions.new_empty(chunks, 2, dtype=torch.float32)
    sums = predictions.new_empty(programs, dtype=torch.float32)
    counter = predictions.new_empty((), dtype=torch.int32)
    overlap = _overlap(predictions.device)
    # launched in normal order, so everything that `ppo_loss_forward` reads before it waits was
    # written before this launch began
    ppo_loss_kernels.ppo_loss_moments[(chunks,)](
        advantages, moments, counter, rows, CHUNK=CHUNK, OVERLAP=overlap["OVERLAP"], num_warps=8
    )
    ppo_loss_kernels.ppo_loss_forward[(programs,)](
        *inputs, moments, sums, counter, loss, gradient, rows, rows // inputs[4].numel(), *factors,
        ACTIONS=width - 1, CHUNK=CHUNK, PARTS=next_power_of_2(chunks), ROWS=ROWS,
        num_warps=ROWS // 32, **overlap,
    )  # fmt: skip
    return loss


def _run_both(inputs: tuple[Tensor, ...], factors: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """The loss and its float32 gradient for the predictions."""
    gradient = torch.empty_like(inputs[0], dtype=torch.float32)
    return _run_forward(inputs, factors, gradient), gradient


class _PpoLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, factors, *inputs):
        loss, gradient = _run_both(inputs, factors)
        ctx.save_for_backward(gradient)
        ctx.dtype = inputs[0].dtype
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx, dloss):
        (gradient,) = ctx.saved_tensors
        out = torch.empty_like(gradient, dtype=ctx.dtype)
        if out.numel() > 0:
            programs = cdiv(out.numel(), SCALED)
            ppo_loss_kernels.ppo_loss_backward[(programs,)](
                gradient, dloss, out, out.numel(),
                SCALED=SCALED, num_warps=4, **_overlap(out.device),
            )  # fmt: skip
        return None, out, *[None] * 6


def ppo_loss(
    predictions: Tensor,
    actions: Tensor,
    logprobs: Tensor,
    advantages: Tensor,
    weights: Tensor,
    values: Tensor,
    returns: Tensor,
    *,
    clip: float = 0.1,
    value_clip: float = 0.1,
    value_weight: float = 0.5,
    entropy_weight: float = 0.01,
) -> Tensor:
    """The mean loss of N rows, with a gradient for `predictions` only.

    Two launches forward and one backward. A NaN in any input makes the loss NaN. Compiled once per
    A and set of dtypes, and for each doubling of N.

    Args:
        predictions: (N, A + 1), contiguous, bf16, fp16 or fp32: A logits and the value.
        actions: (N,), int32, int64 or float64, whole numbers from 0 to A - 1.
        logprobs: (N,), contiguous, bf16, fp16 or fp32, like all that follow; the dtypes may differ.
            The log-probabilities of the actions when they were taken.
        advantages: (N,).
        weights: (M,) where M divides N: each weight belongs to N / M consecutive rows.
        values: (N,), predicted when the actions were taken.
        returns: (N,), the targets of the values.
        clip: the ratio of probabilities is clipped to 1 ± clip.
        value_clip: the value is clipped to the old value ± value_clip.
        value_weight: weight of the value loss.
        entropy_weight: weight of the entropy.

    Returns:
        A float32 scalar. NaN for one row, whose variance is 0 / 0, and for no rows.

    Raises:
        ValueError: a shape, dtype, device or stride differs from the above, or there are more than
            `ACTIONS_MAX` actions.
    """
    factors = (clip, value_clip, value_weight, entropy_weight)
    inputs = (predictions, actions, logprobs, advantages, weights, values, returns)
    _check(*inputs)
    if torch.is_grad_enabled() and predictions.requires_grad:
        loss: Tensor = _PpoLoss.apply(factors, *inputs)
        return loss
    return _run_forward(inputs, factors, None)


def ppo_loss_and_gradient(
    inputs: tuple[Tensor, ...],
    *,
    clip: float = 0.1,
    value_clip: float = 0.1,
    value_weight: float = 0.5,
    entropy_weight: float = 0.01,
) -> tuple[Tensor, Tensor]:
    """The loss and its gradient for the predictions, without autograd.

    Two launches. The gradient is float32 and not scaled.

    Args:
        inputs: the seven tensors of `ppo_loss`, in its order.
        clip: as in `ppo_loss`, like the other factors.

    Raises:
        ValueError: as for `ppo_loss`.
    """
    _check(*inputs)
    return _run_both(inputs, (clip, value_clip, value_weight, entropy_weight))


def ppo_loss_ref(
    predictions: Tensor,
    actions: Tensor,
    logprobs: Tensor,
    advantages: Tensor,
    weights: Tensor,
    values: Tensor,
    returns: Tensor,
    *,
    clip: float = 0.1,
    value_clip: float = 0.1,
    value_weight: float = 0.5,
    entropy_weight: float = 0.01,
) -> Tensor:
    """The definition in plain PyTorch, in float32, or in float64 if the predictions are."""
    wide = torch.promote_types(predictions.dtype, torch.float32)
    data = (logprobs, advantages, weights, values, returns)
    logprobs, advantages, weights, values, returns = (tensor.to(wide) for tensor in data)
    logits, value = predictions[:, :-1].to(wide), predictions[:, -1].to(wide)
    logp = torch.log_softmax(logits, dim=1)
    entropy = -(logp.exp() * logp).sum(1)
    weight = weights.repeat_interleave(len(predictions) // len(weights))
    push = weight * (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    ratio = (logp.gather(1, actions.long()[:, None])[:, 0] - logprobs).exp()
    policy = torch.maximum(-push * ratio, -push * ratio.clamp(1 - clip, 1 + clip))
    held = values + (value - values).clamp(-value_clip, value_clip)
    value_loss = 0.5 * torch.maximum((value - returns) ** 2, (held - returns) ** 2)
    return (policy + value_weight * value_loss - entropy_weight * entropy).mean()


def ppo_loss_bytes(*inputs: Tensor) -> int:
    """Bytes that forward must move: read the seven inputs, write the loss."""
    return sum(tensor.nbytes for tensor in inputs) + 4


def ppo_loss_backward_bytes(predictions: Tensor) -> int:
    """Bytes that backward must move: write the gradient and read the scale."""
    return predictions.nbytes + 4
