"""Copy the drawn segments of a rollout into a minibatch, in one launch.

    for draw j, with s = rows[j]:
        obs[j] actions[j] logprobs[j] values[j] advantages[j] = those of segment s, bit for bit
        returns[j] = values[s] + advantages[s], added in float32
        weight[j] = the draw's weight; the recurrent state is set to zero

    rollout (S, T, ...) and draws (mb,) -> minibatch (mb, T, ...)

At mb = 512, T = 64, D = 96, A = 4, H = 128 and float64 actions, a row is 12 KiB of bf16
observations and 2.5 KiB of other data (float32: 24 and 2.75 KiB). Reading and writing them is 15.4
MB, 3.6 us at 4.3 TB/s (float32: 28.4 MB, 6.6 us).

A program takes a row, or 32 KiB of a longer row. 512 programs of 256 threads are one wave on 132
SMs, so every load of the minibatch is in flight at the same time: a thread issues all its loads, 16
bytes each, before it stores anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsysflow.kernels.arguments import FLOATS, cdiv, next_power_of_2, require
from nsysflow.kernels.prio import Draws

ACTIONS: Final = (torch.float64, torch.float32, torch.int64, torch.int32, torch.uint8)


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """The recorded data of S segments of T steps; all contiguous, on one device."""

    obs: Tensor
    """(S, T, D), bf16, fp16, fp32 or uint8."""
    actions: Tensor
    """(S, T, A), float64, float32, int64, int32 or uint8."""
    logprobs: Tensor
    """(S, T), bf16, fp16 or fp32, like `values` and `advantages`."""
    values: Tensor
    """(S, T)."""
    advantages: Tensor
    """(S, T)."""


@dataclass(frozen=True, kw_only=True)
class Minibatch:
    """Buffers for mb drawn segments; dtypes and device are the rollout's, all contiguous."""

    obs: Tensor
    """(mb, T, D)."""
    actions: Tensor
    """(mb, T, A)."""
    logprobs: Tensor
    """(mb, T)."""
    values: Tensor
    """(mb, T)."""
    advantages: Tensor
    """(mb, T)."""
    returns: Tensor
    """(mb, T), float32."""
    weight: Tensor
    """(mb,), float32."""
    state: Tensor
    """Recurrent state, set to zero: any shape, bf16, fp16 or fp32."""


@dataclass(frozen=True, kw_only=True)
class _Launch:
    """How the work is divided."""

    warps: int = 8
    tile_bytes: int = 32768
    """Bytes of one tensor per program: 8 loads of 16 bytes per thread, held in 32 registers."""


_LAUNCH: Final = _Launch()


@triton.jit
def _select_copy(
    rows_ptr,
    weight_ptr,
    obs_ptr,
    actions_ptr,
    logprobs_ptr,
    values_ptr,
    advantages_ptr,
    to_obs_ptr,
    to_actions_ptr,
    to_logprobs_ptr,
    to_values_ptr,
    to_advantages_ptr,
    to_returns_ptr,
    to_weight_ptr,
    state_ptr,
    state_numel,
    OBS: tl.constexpr,
    ACTIONS: tl.constexpr,
    STEPS: tl.constexpr,
    OBS_TILE: tl.constexpr,
    ACTIONS_TILE: tl.constexpr,
    STEPS_TILE: tl.constexpr,
    STATE_TILE: tl.constexpr,
):
    # int64: rows * OBS passes 2**31 at 350k segments of 64 x 96
    draw = tl.program_id(0).to(tl.int64)
    piece = tl.program_id(1)
    row = tl.load(rows_ptr + draw)
    weight = tl.load(weight_ptr + draw)

    mine = (draw * tl.num_programs(1) + piece) * STATE_TILE + tl.arange(0, STATE_TILE)
    zeros = tl.zeros([STATE_TILE], state_ptr.dtype.element_ty)
    tl.store(state_ptr + mine, zeros, mask=mine < state_numel)

    # all loads before any store: a thread only waits where it first uses a loaded value
    o = piece * OBS_TILE + tl.arange(0, OBS_TILE)
    a = piece * ACTIONS_TILE + tl.arange(0, ACTIONS_TILE)
    t = piece * STEPS_TILE + tl.arange(0, STEPS_TILE)
    obs = tl.load(obs_ptr + row * OBS + o, mask=o < OBS)
    actions = tl.load(actions_ptr + row * ACTIONS + a, mask=a < ACTIONS)
    logprobs = tl.load(logprobs_ptr + row * STEPS + t, mask=t < STEPS)
    values = tl.load(values_ptr + row * STEPS + t, mask=t < STEPS)
    advantages = tl.load(advantages_ptr + row * STEPS + t, mask=t < STEPS)

    tl.store(to_obs_ptr + draw * OBS + o, obs, mask=o < OBS)
    tl.store(to_actions_ptr + draw * ACTIONS + a, actions, mask=a < ACTIONS)
    tl.store(to_logprobs_ptr + draw * STEPS + t, logprobs, mask=t < STEPS)
    tl.store(to_values_ptr + draw * STEPS + t, values, mask=t < STEPS)
    tl.store(to_advantages_ptr + draw * STEPS + t, advantages, mask=t < STEPS)
    returns = values.to(tl.float32) + advantages.to(tl.float32)
    tl.store(to_returns_ptr + draw * STEPS + t, returns, mask=t < STEPS)
    if piece == 0:
        tl.store(to_weight_ptr + draw, weight)


def empty_minibatch(
    rollout: Rollout, draws: int, state_shape: Sequence[int], *, state_dtype: torch.dtype
) -> Minibatch:
    """An uninitialised minibatch for `draws` segments of this rollout."""

    def like(tensor: Tensor) -> Tensor:
        return tensor.new_empty((draws, *tensor.shape[1:]))

    return Minibatch(
        obs=like(rollout.obs),
        actions=like(rollout.actions),
        logprobs=like(rollout.logprobs),
        values=like(rollout.values),
        advantages=like(rollout.advantages),
        returns=rollout.values.new_empty((draws, rollout.values.shape[1]), dtype=torch.float32),
        weight=rollout.values.new_empty(draws, dtype=torch.float32),
        state=rollout.values.new_empty(state_shape, dtype=state_dtype),
    )


def _check(rollout: Rollout, draws: Draws, out: Minibatch) -> None:
    """Refuse arguments that the kernel would misread.

    Raises:
        ValueError: a shape, dtype, device or stride is wrong.
    """
    mb = len(draws.rows)
    require("rollout.obs", rollout.obs, (None, None, None), dtypes=(*FLOATS, torch.uint8))
    device = rollout.obs.device
    segments, steps, _ = rollout.obs.shape
    require(
        "rollout.actions", rollout.actions, (segments, steps, None), dtypes=ACTIONS, device=device
    )
    for name in ("logprobs", "values", "advantages"):
        require(f"rollout.{name}", getattr(rollout, name), (segments, steps), device=device)
    require("draws.rows", draws.rows, (mb,), dtypes=(torch.int64,), device=device)
    require("draws.weight", draws.weight, (mb,), dtypes=(torch.float32,), device=device)
    for name in ("obs", "actions", "logprobs", "values", "advantages"):
        source = getattr(rollout, name)
        shape = (mb, *source.shape[1:])
        require(f"out.{name}", getattr(out, name), shape, dtypes=(source.dtype,), device=device)
    require("out.returns", out.returns, (mb, steps), dtypes=(torch.float32,), device=device)
    require("out.weight", out.weight, (mb,), dtypes=(torch.float32,), device=device)
    require("out.state", out.state, out.state.shape, device=device)
    if mb and not segments:
        raise ValueError(
            f"cannot take {mb} draws from 0 segments: obs is {tuple(rollout.obs.shape)}"
        )


def select_copy(rollout: Rollout, draws: Draws, *, out: Minibatch) -> Minibatch:
    """Fill a minibatch. One launch on torch's current stream; capturable.

    Compiled once per row size and set of dtypes.

    Args:
        rollout: the source.
        draws: the segments and their weights. `draws.rows` must be in [0, S); it is on the device
            and therefore not checked.
        out: the target; `empty_minibatch` makes one. It must not overlap the rollout.

    Returns:
        `out`.

    Raises:
        ValueError: a shape, dtype, device or stride differs from `Rollout` and `Minibatch`.
    """
    _check(rollout, draws, out)
    mb = len(draws.rows)
    if mb == 0:
        out.state.zero_()
        return out
    per_draw = {
        "OBS": rollout.obs[0],
        "ACTIONS": rollout.actions[0],
        "STEPS": out.returns[0],
        "STATE": out.state.view(-1)[: cdiv(out.state.numel(), mb)],
    }
    largest = max(tensor.nbytes for tensor in per_draw.values())
    pieces = max(cdiv(largest, _LAUNCH.tile_bytes), 1)
    tiles = {
        f"{name}_TILE": next_power_of_2(max(cdiv(tensor.numel(), pieces), 1))
        for name, tensor in per_draw.items()
    }
    _select_copy[(mb, pieces)](
        draws.rows, draws.weight,
        rollout.obs, rollout.actions, rollout.logprobs, rollout.values, rollout.advantages,
        out.obs, out.actions, out.logprobs, out.values, out.advantages, out.returns, out.weight,
        out.state, out.state.numel(),
        OBS=per_draw["OBS"].numel(),
        ACTIONS=per_draw["ACTIONS"].numel(),
        STEPS=per_draw["STEPS"].numel(),
        **tiles, num_warps=_LAUNCH.warps,
    )  # fmt: skip
    return out


def select_copy_ref(rollout: Rollout, draws: Draws, state: Tensor) -> Minibatch:
    """The same in plain PyTorch, into new tensors; the new state is like `state`."""
    rows = draws.rows
    values, advantages = rollout.values[rows], rollout.advantages[rows]
    return Minibatch(
        obs=rollout.obs[rows],
        actions=rollout.actions[rows],
        logprobs=rollout.logprobs[rows],
        values=values,
        advantages=advantages,
        returns=values.float() + advantages.float(),
        weight=draws.weight.clone(),
        state=torch.zeros_like(state),
    )


def select_copy_bytes(rollout: Rollout, draws: Draws, state: Tensor) -> int:
    """Bytes that one call must move: read and write each drawn row, write returns and state."""
    copied = ("obs", "actions", "logprobs", "values", "advantages")
    a_row: int = sum(getattr(rollout, name)[0].nbytes for name in copied)
    returns = 4 * rollout.values.shape[1]
    return len(draws.rows) * (2 * a_row + returns + 8 + 2 * 4) + state.nbytes
