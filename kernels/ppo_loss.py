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

From Hopper on, each may begin before the previous launch has ended (programmatic dependent launch).
It waits for that end before it first needs its results and before it writes anything. Sums have a
fixed order and the only atomic is an integer, so results repeat bitwise.
"""

from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from nsysflow.kernels.arguments import cdiv, follow, next_power_of_2, overlap, require


@triton.jit
def ppo_loss_moments(
    advantages_ptr, moments_ptr, counter_ptr, rows, CHUNK: tl.constexpr, OVERLAP: tl.constexpr
):
    """Compute mean and sum of squares around it for each chunk of advantages.

    Also resets the counter of `ppo_loss_forward`.
    """
    follow(OVERLAP)
    if OVERLAP:
        gdc_launch_dependents()
    first = tl.program_id(0) * CHUNK
    at = first + tl.arange(0, CHUNK)
    inside = at < rows
    advantage = tl.load(advantages_ptr + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(advantage) / tl.minimum(rows - first, CHUNK)
    off = tl.where(inside, advantage - mean, 0.0)
    tl.store(moments_ptr + 2 * tl.program_id(0), mean)
    tl.store(moments_ptr + 2 * tl.program_id(0) + 1, tl.sum(off * off))
    if tl.program_id(0) == 0:
        tl.store(counter_ptr, 0)


@triton.jit
def _mean_and_scale(moments_ptr, rows, CHUNK: tl.constexpr, PARTS: tl.constexpr):
    """Mean of all advantages and 1 / (std + 1e-8), from the chunks' moments (Chan's formula)."""
    part = tl.arange(0, PARTS)
    count = tl.maximum(tl.minimum(rows - part * CHUNK, CHUNK), 0).to(tl.float32)
    means = tl.load(moments_ptr + 2 * part, mask=count > 0, other=0.0)
    squares = tl.load(moments_ptr + 2 * part + 1, mask=count > 0, other=0.0)
    mean = tl.sum(count * means) / rows
    square = tl.sum(squares + count * (means - mean) * (means - mean))
    return mean, 1 / (tl.sqrt(square / (rows - 1)) + 1e-8)


@triton.jit
def _clip(x, low, high):
    """x clipped to [low, high]; with `where`, because minimum and maximum would drop a NaN."""
    return tl.where(x < low, low, tl.where(x > high, high, x))


@triton.jit(do_not_specialize=["rows", "steps"])
def ppo_loss_forward(
    predictions_ptr, actions_ptr, logprobs_ptr, advantages_ptr, weights_ptr, values_ptr,
    returns_ptr, moments_ptr, sums_ptr, counter_ptr, loss_ptr, gradient_ptr, rows, steps,
    clip, value_clip, value_weight, entropy_weight,
    ACTIONS: tl.constexpr, CHUNK: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    """Compute each row's loss and gradient; the last program to finish writes the mean loss."""
    if OVERLAP:
        gdc_launch_dependents()
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    # int64: rows * (ACTIONS + 1) passes 2**31 before rows does
    first = row.to(tl.int64) * (ACTIONS + 1)
    logits: tl.tuple = ()
    for j in tl.static_range(ACTIONS):
        logits += (tl.load(predictions_ptr + first + j, mask=inside, other=0.0).to(tl.float32),)
    value = tl.load(predictions_ptr + first + ACTIONS, mask=inside, other=0.0).to(tl.float32)
    action = tl.load(actions_ptr + row, mask=inside, other=0).to(tl.int32)
    old_logprob = tl.load(logprobs_ptr + row, mask=inside, other=0.0).to(tl.float32)
    advantage = tl.load(advantages_ptr + row, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weights_ptr + row // steps, mask=inside, other=0.0).to(tl.float32)
    old_value = tl.load(values_ptr + row, mask=inside, other=0.0).to(tl.float32)
    wanted = tl.load(returns_ptr + row, mask=inside, other=0.0).to(tl.float32)

    top = logits[0]
    for j in tl.static_range(1, ACTIONS):
        top = tl.maximum(top, logits[j])
    grown: tl.tuple = ()
    total = tl.zeros((ROWS,), tl.float32)
    weighted = tl.zeros((ROWS,), tl.float32)
    chosen = tl.zeros((ROWS,), tl.float32)
    for j in tl.static_range(ACTIONS):
        below = logits[j] - top
        grown += (tl.exp(below),)
        total += grown[j]
        weighted += grown[j] * below
        chosen = tl.where(action == j, below, chosen)
    log_total = tl.log(total)
    entropy = log_total - weighted / total

    ratio = tl.exp(chosen - log_total - old_logprob)
    error = value - wanted
    moved = value - old_value
    held_error = old_value + _clip(moved, -value_clip, value_clip) - wanted
    squared = tl.maximum(error * error, held_error * held_error, propagate_nan=tl.PropagateNan.ALL)

    if OVERLAP:
        gdc_wait()
    mean, scale = _mean_and_scale(moments_ptr, rows, CHUNK, PARTS)
    push = -weight * (advantage - mean) * scale
    free = push * ratio
    held = push * _clip(ratio, 1 - clip, 1 + clip)
    policy = tl.maximum(free, held, propagate_nan=tl.PropagateNan.ALL)
    of_row = policy + 0.5 * value_weight * squared - entropy_weight * entropy
    # one thread does both the scalar store and the atomic, so the count follows the sum
    tl.store(sums_ptr + tl.program_id(0), tl.sum(tl.where(inside, of_row, 0.0)))
    before = tl.atomic_add(counter_ptr, 1, sem="acq_rel")

    if gradient_ptr is not None:
        dlogprob = tl.where(free < held, 0.0, free) / rows
        # inside the range both errors are equal, except for the rounding of old_value + moved
        out = (tl.abs(moved) > value_clip) & (held_error * held_error > error * error)
        dvalue = tl.where(out, 0.0, value_weight * error) / rows
        share = 1 / total
        dentropy = entropy_weight / rows
        for j in tl.static_range(ACTIONS):
            p = grown[j] * share
            logp = logits[j] - top - log_total
            hit = tl.where(action == j, 1.0, 0.0)
            dlogit = dlogprob * (hit - p) + dentropy * p * (logp + entropy)
            tl.store(gradient_ptr + first + j, dlogit, mask=inside)
        tl.store(gradient_ptr + first + ACTIONS, dvalue, mask=inside)

    if before == tl.num_programs(0) - 1:
        added = tl.zeros((ROWS,), tl.float32)
        for start in range(0, tl.num_programs(0), ROWS):
            program = start + tl.arange(0, ROWS)
            there = program < tl.num_programs(0)
            # .cg bypasses the L1 cache, which does not see the stores of other SMs
            added += tl.load(sums_ptr + program, mask=there, other=0.0, cache_modifier=".cg")
        tl.store(loss_ptr, tl.sum(added) / rows)


@triton.jit
def ppo_loss_backward(
    gradient_ptr, dloss_ptr, out_ptr, numel, SCALED: tl.constexpr, OVERLAP: tl.constexpr
):
    """Multiply the saved gradient by the gradient of the loss."""
    at = tl.program_id(0).to(tl.int64) * SCALED + tl.arange(0, SCALED)
    inside = at < numel
    if OVERLAP:
        gdc_wait()
    scaled = tl.load(gradient_ptr + at, mask=inside) * tl.load(dloss_ptr)
    tl.store(out_ptr + at, scaled.to(out_ptr.dtype.element_ty), mask=inside)


ACTIONS_MAX: Final = 64
"""A row's logits and their exponentials are in the registers of one thread, at most 255."""
CHUNK: Final = 4096
"""Advantages per program of the first launch: 16 per thread of 8 warps, four 16-byte loads."""
ROWS: Final = 256
"""Rows per program of the second, one per thread of 8 warps: 32 768 rows are one program per SM."""
SCALED: Final = 1024
"""Elements per program of the third: 8 per thread of 4 warps."""


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
    options = overlap(predictions.device)
    # it waits for all launches before it, and only then lets the next one begin, which reads what
    # they wrote before it waits itself
    ppo_loss_moments[(chunks,)](
        advantages, moments, counter, rows, CHUNK=CHUNK, num_warps=8, **options
    )
    ppo_loss_forward[(programs,)](
        *inputs, moments, sums, counter, loss, gradient, rows, rows // inputs[4].numel(), *factors,
        ACTIONS=width - 1, CHUNK=CHUNK, PARTS=next_power_of_2(chunks), ROWS=ROWS,
        num_warps=ROWS // 32, **options,
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
            ppo_loss_backward[(programs,)](
                gradient, dloss, out, out.numel(),
                SCALED=SCALED, num_warps=4, **overlap(out.device),
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
