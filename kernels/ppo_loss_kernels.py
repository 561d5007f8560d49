"""The three Triton kernels of `ppo_loss`; the equations and the plan are in its docstring."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def ppo_loss_moments(
    advantages_ptr, moments_ptr, counter_ptr, rows, CHUNK: tl.constexpr, OVERLAP: tl.constexpr
):
    """Compute mean and sum of squares around it for each chunk of advantages.

    Also resets the counter of `ppo_loss_forward`.
    """
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
