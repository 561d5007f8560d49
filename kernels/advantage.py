"""Generalized advantage estimation with the clipped importance ratios of V-trace.

    A[T-1] = 0, and for t = T-2 ... 0
        n = 1 - done[t+1]     rho = min(ratio[t], rho_clip)     c = min(ratio[t], c_clip)
        delta = rho * (reward[t+1] + gamma * value[t+1] * n - value[t])
        A[t]  = delta + gamma * lam * c * n * A[t+1]

    values, rewards, done, ratio (S, T) -> A (S, T) float32; S segments of T steps, T contiguous

(Schulman et al. 2016, arXiv:1506.02438; Espeholt et al. 2018, arXiv:1802.01561.)

Four reads and one write. At 8192 x 64 in bf16 that is 4 x 1 MiB + 2 MiB, 1.5 us at 4.3 TB/s; in
float32 10 MiB, 2.4 us. One thread per row would be a chain of 64 steps, with rows 128 bytes apart
and only 256 warps for 132 SMs. But A[t] is an affine map of A[t+1], and affine maps compose, so a
row is a scan: 8 lanes of 8 steps in bf16, 16 lanes of 4 steps in float32. That gives 2048 or 4096
warps, 16 or 31 per SM. Each lane has all its reads in flight as four 16-byte loads, and three or
four rounds of shuffles replace the chain.

Reads at t+1 would split those loads, so a lane gets the values right of its steps from its
neighbour by shuffle. In Triton that is tl.gather along the lanes, one shuffle each while a row
stays in its warp, and tl.split, which is free while both halves are in one thread.

A NaN spreads to earlier steps of its row, as in the equation, and to no other row.
"""

from dataclasses import dataclass
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsysflow.kernels import nvrtc
from nsysflow.kernels.arguments import FLOATS, Backend, backend_for, cdiv, next_power_of_2, require


@dataclass(frozen=True, kw_only=True)
class _Launch:
    """How the work is divided, for both backends."""

    warps: int = 4
    """Small blocks: 512 of them at 8192 x 64 leave 3 % of 132 SMs idle in the last wave."""
    lanes: int = 32
    """The most lanes per row, so that it stays in one warp; longer rows take several rounds."""


_LAUNCH: Final = _Launch()


@triton.jit
def _from_right(x, hop: tl.constexpr, beyond, ROWS: tl.constexpr, LANES: tl.constexpr):
    """x of the lane `hop` places to the right; `beyond` (ROWS, 1) past the last lane."""
    lane = tl.arange(0, LANES)[None, :] + tl.zeros([ROWS, 1], tl.int32)
    right = tl.gather(x, tl.minimum(lane + hop, LANES - 1), 1)
    return tl.where(lane + hop < LANES, right, beyond)


@triton.jit
def _first(x, SPAN: tl.constexpr):
    """The first column of x, (ROWS, 1)."""
    first = (tl.arange(0, SPAN) == 0)[None, :]
    return tl.sum(tl.where(first, x, 0.0), axis=1, keep_dims=True)


@triton.jit
def _next(x, beyond, ROWS: tl.constexpr, LANES: tl.constexpr, CHUNK: tl.constexpr):
    """x of the next step, (ROWS, LANES * CHUNK) like x."""
    if CHUNK == 1:
        return _from_right(x, 1, beyond, ROWS, LANES)
    else:
        even, odd = tl.split(tl.reshape(x, [ROWS, LANES * CHUNK // 2, 2]))
        after_odd = _next(even, beyond, ROWS, LANES, CHUNK // 2)
        return tl.reshape(tl.join(odd, after_odd), [ROWS, LANES * CHUNK])


@triton.jit
def _solve(delta, keep, beyond, ROWS: tl.constexpr, LANES: tl.constexpr, CHUNK: tl.constexpr):
    """A from A[t] = delta[t] + keep[t] A[t+1], (ROWS, LANES * CHUNK), and its first column.

    A is `beyond` after the last step. Pairs of steps are merged until each lane has one step.
    """
    if CHUNK == 1:
        for power in tl.static_range(5):  # 32 lanes
            if 1 << power < LANES:
                # past the last lane: the identity map
                delta += keep * _from_right(delta, 1 << power, 0.0, ROWS, LANES)
                keep *= _from_right(keep, 1 << power, 1.0, ROWS, LANES)
        a = delta + keep * beyond
        return a, _first(a, LANES)
    else:
        even_delta, odd_delta = tl.split(tl.reshape(delta, [ROWS, LANES * CHUNK // 2, 2]))
        even_keep, odd_keep = tl.split(tl.reshape(keep, [ROWS, LANES * CHUNK // 2, 2]))
        even, first = _solve(
            even_delta + even_keep * odd_delta,
            even_keep * odd_keep,
            beyond,
            ROWS,
            LANES,
            CHUNK // 2,
        )
        odd = odd_delta + odd_keep * _next(even, beyond, ROWS, LANES, CHUNK // 2)
        return tl.reshape(tl.join(even, odd), [ROWS, LANES * CHUNK]), first


@triton.jit
def _advantage(
    values_ptr,
    rewards_ptr,
    done_ptr,
    ratio_ptr,
    out_ptr,
    rows,
    gamma,
    gamma_lambda,
    rho_clip,
    c_clip,
    STEPS: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    CHUNK: tl.constexpr,
):
    SPAN: tl.constexpr = LANES * CHUNK
    TILES: tl.constexpr = (STEPS + SPAN - 1) // SPAN
    # int64: rows * STEPS passes 2**31 at 8M rows of 256
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    beyond_a = tl.zeros([ROWS, 1], tl.float32)
    beyond_value = tl.zeros([ROWS, 1], tl.float32)
    beyond_reward = tl.zeros([ROWS, 1], tl.float32)
    beyond_done = tl.zeros([ROWS, 1], tl.float32)
    for tile in range(TILES):
        step = ((TILES - 1 - tile) * SPAN + tl.arange(0, SPAN))[None, :]
        at = row * STEPS + step
        mask = (row < rows) & (step < STEPS)
        value = tl.load(values_ptr + at, mask=mask, other=0).to(tl.float32)
        reward = tl.load(rewards_ptr + at, mask=mask, other=0).to(tl.float32)
        done = tl.load(done_ptr + at, mask=mask, other=0).to(tl.float32)
        ratio = tl.load(ratio_ptr + at, mask=mask, other=0).to(tl.float32)

        next_value = _next(value, beyond_value, ROWS, LANES, CHUNK)
        next_reward = _next(reward, beyond_reward, ROWS, LANES, CHUNK)
        n = 1.0 - _next(done, beyond_done, ROWS, LANES, CHUNK)
        # where, not minimum: a NaN ratio must stay one
        rho = tl.where(ratio > rho_clip, rho_clip, ratio)
        c = tl.where(ratio > c_clip, c_clip, ratio)
        inside = step < STEPS - 1  # A is 0 from the row's last step on
        delta = tl.where(inside, rho * (next_reward + gamma * n * next_value - value), 0.0)
        keep = tl.where(inside, gamma_lambda * n * c, 0.0)
        a, first_a = _solve(delta, keep, beyond_a, ROWS, LANES, CHUNK)
        tl.store(out_ptr + at, a, mask=mask)

        if TILES > 1:
            beyond_a = first_a
            beyond_value = _first(value, SPAN)
            beyond_reward = _first(reward, SPAN)
            beyond_done = _first(done, SPAN)


def advantage(
    values: Tensor,
    rewards: Tensor,
    done: Tensor,
    ratio: Tensor,
    *,
    gamma: float = 0.99,
    lam: float = 0.95,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
    out: Tensor | None = None,
    backend: Backend = "auto",
) -> Tensor:
    """Advantages of S segments of T steps. One launch on torch's current stream; capturable.

    Compiled once per T and set of dtypes; `cuda` also once per set of factors.

    Args:
        values: (S, T), contiguous, bf16, fp16 or fp32. So are `rewards` and `ratio`; the dtypes
            may differ.
        rewards: (S, T); the reward of step t was received with the observation of step t.
        done: (S, T), one of those dtypes, bool or uint8: 1 where an episode began at step t.
        ratio: (S, T), probability of the action under the current policy divided by that under the
            policy that recorded it.
        gamma: discount.
        lam: lambda of the estimator.
        rho_clip: upper clip of the ratio in delta.
        c_clip: upper clip of the ratio in the trace.
        out: (S, T), float32, contiguous; a new tensor if None. Must not overlap an input.
        backend: see `backend_for`.

    Returns:
        `out`, float32. A row that contains a NaN has NaNs.

    Raises:
        ValueError: a shape, dtype, device or stride differs from the above, or the backend is
            unknown or cannot run there.
    """
    require("values", values, (None, None))
    for name, tensor, dtypes in (
        ("rewards", rewards, FLOATS),
        ("done", done, (*FLOATS, torch.bool, torch.uint8)),
        ("ratio", ratio, FLOATS),
    ):
        require(name, tensor, values.shape, dtypes=dtypes, device=values.device)
    if out is None:
        out = torch.empty(values.shape, dtype=torch.float32, device=values.device)
    require("out", out, values.shape, dtypes=(torch.float32,), device=values.device)
    taken = backend_for(backend, values.device)
    if out.numel() == 0:
        return out
    if done.dtype == torch.bool:
        done = done.view(torch.uint8)
    launch = _launch_cuda if taken == "cuda" else _launch_triton
    factors = _factors(gamma=gamma, lam=lam, rho_clip=rho_clip, c_clip=c_clip)
    launch((values, rewards, done, ratio), out, factors)
    return out


def _factors(*, gamma: float, lam: float, rho_clip: float, c_clip: float) -> dict[str, float]:
    """The factors by name, in the order of the Triton kernel's arguments."""
    names = ("GAMMA", "GAMMA_LAMBDA", "RHO_CLIP", "C_CLIP")
    return dict(zip(names, map(float, (gamma, gamma * lam, rho_clip, c_clip)), strict=True))


def _launch_triton(inputs: tuple[Tensor, ...], out: Tensor, factors: dict[str, float]) -> None:
    rows, steps = out.shape
    chunk, lanes = _cut(inputs)
    at_once = min(next_power_of_2(rows), 32 * _LAUNCH.warps // lanes)
    _advantage[(cdiv(rows, at_once),)](
        *inputs, out, rows, *factors.values(),
        STEPS=steps, ROWS=at_once, LANES=lanes, CHUNK=chunk, num_warps=_LAUNCH.warps,
    )  # fmt: skip


def _cut(inputs: tuple[Tensor, ...]) -> tuple[int, int]:
    """Steps per lane, 16 bytes of the widest input, and lanes per row."""
    chunk = 16 // max(tensor.element_size() for tensor in inputs)
    lanes = next_power_of_2(cdiv(inputs[0].shape[1], chunk))
    return chunk, min(lanes, _LAUNCH.lanes)


def cuda_constants(inputs: tuple[Tensor, ...], out: Tensor) -> dict[str, str | int | float]:
    """The constants of `csrc/advantage.cu` for such rows: types, lanes, width of a load."""
    steps = out.shape[1]
    chunk, lanes = _cut(inputs)
    aligned = all(tensor.data_ptr() % 16 == 0 for tensor in (*inputs, out))
    width = chunk
    while steps % width or not (aligned or width == 1):
        width //= 2
    names = ("VALUES", "REWARDS", "DONE", "RATIO")
    return {
        **{name: nvrtc.C_TYPES[tensor.dtype] for name, tensor in zip(names, inputs, strict=True)},
        "LANES": lanes,
        "CHUNK": chunk,
        "WIDTH": width,
        "THREADS": 32 * _LAUNCH.warps,
    }


def _launch_cuda(inputs: tuple[Tensor, ...], out: Tensor, factors: dict[str, float]) -> None:
    rows, steps = out.shape
    constants = cuda_constants(inputs, out)
    at_once = 32 * _LAUNCH.warps // int(constants["LANES"])
    nvrtc.launch(
        "advantage",
        constants | factors,
        blocks=cdiv(rows, at_once),
        threads=32 * _LAUNCH.warps,
        arguments=[*inputs, out, rows, steps],
    )


def advantage_ref(
    values: Tensor,
    rewards: Tensor,
    done: Tensor,
    ratio: Tensor,
    *,
    gamma: float = 0.99,
    lam: float = 0.95,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> Tensor:
    """The definition: the equation step by step, in float64 if `values` is, else in float32."""
    dtype = torch.float64 if values.dtype == torch.float64 else torch.float32
    values, rewards, ratio = values.to(dtype), rewards.to(dtype), ratio.to(dtype)
    going_on = 1 - done.to(dtype)
    rho, c = ratio.clamp(max=rho_clip), ratio.clamp(max=c_clip)
    steps = [torch.zeros_like(values[:, 0])] if values.shape[1] > 0 else []
    for t in range(values.shape[1] - 2, -1, -1):
        n = going_on[:, t + 1]
        delta = rho[:, t] * (rewards[:, t + 1] + gamma * values[:, t + 1] * n - values[:, t])
        steps.append(delta + gamma * lam * c[:, t] * n * steps[-1])
    # stacked at the end: torch.compile cannot fuse writes into the columns of a tensor
    return torch.stack(steps[::-1], dim=1) if steps else torch.zeros_like(values)


def advantage_bytes(values: Tensor, rewards: Tensor, done: Tensor, ratio: Tensor) -> int:
    """Bytes that one call must move: read the four inputs, write A in float32."""
    inputs = (values, rewards, done, ratio)
    return sum(tensor.nbytes for tensor in inputs) + 4 * values.numel()
