"""Generalized advantage estimation with the clipped importance ratios of V-trace.

    A[T-1] = 0, and for t = T-2 ... 0
        n = 1 - done[t+1]     rho = min(ratio[t], rho_clip)     c = min(ratio[t], c_clip)
        delta = rho * (reward[t+1] + gamma * value[t+1] * n - value[t])
        A[t]  = delta + gamma * lam * c * n * A[t+1]

    values, rewards, done, ratio (S, T) -> A (S, T) float32; S segments of T steps, T contiguous

(Schulman et al. 2016, arXiv:1506.02438; Espeholt et al. 2018, arXiv:1802.01561.)

Four reads and one write: at 8192 x 64 and bf16 4 x 1 MiB + 2 MiB, 1.5 us at 4.3 TB/s; float32
10 MiB, 2.4 us. A thread per row has 64 steps in a chain, rows 128 bytes apart and 256 warps for 132
SMs. But A[t] is an affine map of A[t+1], and such maps compose, so a row is a scan: 8 lanes of 8
steps (bf16), 16 of 4 (float32). That is 2048 or 4096 warps, 16 or 31 an SM, each lane with all it
reads in flight as four 16-byte loads, and three or four rounds of shuffles in place of the chain.

Reads at t+1 would break those loads up. The CUDA kernel takes the step right of a lane's chunk from
its neighbour. Triton has no such shuffle, so there the scan carries what t+1 has to give: with
u[t] = reward[t] + gamma value[t] n[t] and p[t] = n[t] A[t], where n[t] = 1 - done[t], it is
    A[t] = gamma lam c[t] p[t+1] + rho[t] u[t+1] - rho[t] value[t],
a map from (p, u) at t+1 to A, n and u at t, and every input is read at its own t.

A NaN spreads to earlier steps of its row, as in the equation, and to no other row.
"""

from dataclasses import dataclass
from typing import Final, Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsysflow.kernels import compiled
from nsysflow.kernels.arguments import FLOATS, require

Backend = Literal["auto", "triton", "cuda"]


@dataclass(frozen=True, kw_only=True)
class _Launch:
    """How the work is cut, for both backends."""

    warps: int = 4
    """Small blocks: 512 of them at 8192 x 64 leave 3 % of 132 SMs idle in the last round."""
    tile: int = 1024
    """Elements of a Triton program: 8 a thread, 16 bytes of bf16."""
    longest: int = 1024
    """Steps of a row that a Triton program scans at once; a longer row takes several rounds."""


_LAUNCH: Final = _Launch()


@triton.jit
def _before(
    late_p, late_u, late_0, late_n, late_first_u, early_p, early_u, early_0, early_n, early_first_u
):
    """Maps over a stretch, then over the one before it: one map over both.

    A map is (factor of p, factor of u, constant) of the A it gives, and n and u where it starts.
    """
    through = early_p * late_n
    constant = early_0 + through * late_0 + early_u * late_first_u
    return through * late_p, through * late_u, constant, early_n, early_first_u


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
    SPAN: tl.constexpr,
):
    # int64: rows * STEPS passes 2**31 at 8M rows of 256
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    beyond_p = tl.zeros([ROWS], tl.float32)
    beyond_u = tl.zeros([ROWS], tl.float32)
    TILES: tl.constexpr = (STEPS + SPAN - 1) // SPAN
    for tile in range(TILES):
        step = (TILES - 1 - tile) * SPAN + tl.arange(0, SPAN)
        at = row[:, None] * STEPS + step[None, :]
        mask = (row < rows)[:, None] & (step < STEPS)[None, :]
        value = tl.load(values_ptr + at, mask=mask, other=0).to(tl.float32)
        reward = tl.load(rewards_ptr + at, mask=mask, other=0).to(tl.float32)
        done = tl.load(done_ptr + at, mask=mask, other=0).to(tl.float32)
        ratio = tl.load(ratio_ptr + at, mask=mask, other=0).to(tl.float32)

        n = 1.0 - done
        u = reward + gamma * value * n
        # where, not minimum: a NaN ratio must stay one
        rho = tl.where(ratio > rho_clip, rho_clip, ratio)
        c = tl.where(ratio > c_clip, c_clip, ratio)
        inside = (step < STEPS - 1)[None, :]  # A is 0 from the row's last step on
        to_p = tl.where(inside, gamma_lambda * c, 0.0)
        to_u = tl.where(inside, rho, 0.0)
        constant = tl.where(inside, -rho * value, 0.0)
        to_p, to_u, constant, _, _ = tl.associative_scan(
            (to_p, to_u, constant, n, u), 1, _before, reverse=True
        )
        a = constant + to_p * beyond_p[:, None] + to_u * beyond_u[:, None]
        tl.store(out_ptr + at, a, mask=mask)

        first = (tl.arange(0, SPAN) == 0)[None, :]
        beyond_p = tl.sum(tl.where(first, n * a, 0.0), axis=1)
        beyond_u = tl.sum(tl.where(first, u, 0.0), axis=1)


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

    Compiled once for each T and set of dtypes; `cuda` also for each set of factors.

    Args:
        values: (S, T), contiguous, bf16, fp16 or fp32, as are `rewards` and `ratio`; the dtypes may
            differ.
        rewards: (S, T): that of step t came with the observation of step t.
        done: (S, T), of those dtypes, bool or uint8: 1 where an episode began at step t.
        ratio: (S, T), probability of the action under the policy of now over that of then.
        gamma: discount.
        lam: lambda of the estimator.
        rho_clip: upper clip of the ratio in delta.
        c_clip: upper clip of the ratio in the trace.
        out: (S, T), float32, contiguous; a new tensor when None. May not overlap an input.
        backend: "auto" takes "triton".

    Returns:
        `out`, float32; NaN in a row where that row holds one.

    Raises:
        ValueError: shapes, dtypes, devices or strides are not as above, or the backend is unknown
            or cannot run there.
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
    if backend not in ("auto", "triton", "cuda"):
        raise ValueError(f"backend must be auto, triton or cuda, and is {backend!r}")
    if out.numel() == 0:
        return out
    if done.dtype == torch.bool:
        done = done.view(torch.uint8)
    inputs = (values, rewards, done, ratio)
    if backend == "cuda":
        if values.device.type != "cuda":
            raise ValueError(f"backend cuda needs a CUDA device, and values is on {values.device}")
        _launch_cuda(inputs, out, gamma, lam, rho_clip, c_clip)
        return out
    rows, steps = values.shape
    span = min(max(triton.next_power_of_2(steps), 16), _LAUNCH.longest)
    at_once = min(triton.next_power_of_2(rows), _LAUNCH.tile // span)
    _advantage[(triton.cdiv(rows, at_once),)](
        *inputs,
        out,
        rows,
        gamma,
        gamma * lam,
        rho_clip,
        c_clip,
        STEPS=steps,
        ROWS=at_once,
        SPAN=span,
        num_warps=_LAUNCH.warps,
    )
    return out


_C_TYPES: Final = {
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.float32: "f32",
    torch.uint8: "u8",
}


def cuda_constants(inputs: tuple[Tensor, ...], out: Tensor) -> dict[str, str | int | float]:
    """How `csrc/advantage.cu` is to cut rows like these: types, lanes, and the width of a load."""
    steps = out.shape[1]
    chunk = 16 // max(tensor.element_size() for tensor in inputs)
    aligned = all(tensor.data_ptr() % 16 == 0 for tensor in (*inputs, out))
    width = chunk
    while steps % width or not (aligned or width == 1):
        width //= 2
    names = ("VALUES", "REWARDS", "DONE", "RATIO")
    return {
        **{name: _C_TYPES[tensor.dtype] for name, tensor in zip(names, inputs, strict=True)},
        "LANES": min(triton.next_power_of_2(triton.cdiv(steps, chunk)), 32),
        "CHUNK": chunk,
        "WIDTH": width,
        "THREADS": 32 * _LAUNCH.warps,
    }


def _launch_cuda(
    inputs: tuple[Tensor, ...],
    out: Tensor,
    gamma: float,
    lam: float,
    rho_clip: float,
    c_clip: float,
) -> None:
    rows, steps = out.shape
    constants = cuda_constants(inputs, out)
    at_once = 32 * _LAUNCH.warps // int(constants["LANES"])
    compiled.launch(
        "advantage",
        constants
        | {
            "GAMMA": float(gamma),
            "GAMMA_LAMBDA": float(gamma * lam),
            "RHO_CLIP": float(rho_clip),
            "C_CLIP": float(c_clip),
        },
        blocks=triton.cdiv(rows, at_once),
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
    """The equation, step by step: the definition; in float64 if `values` is, else in float32."""
    dtype = torch.float64 if values.dtype == torch.float64 else torch.float32
    values, rewards, ratio = values.to(dtype), rewards.to(dtype), ratio.to(dtype)
    going_on = 1 - done.to(dtype)
    rho, c = ratio.clamp(max=rho_clip), ratio.clamp(max=c_clip)
    out = torch.zeros_like(values)
    for t in range(values.shape[1] - 2, -1, -1):
        n = going_on[:, t + 1]
        delta = rho[:, t] * (rewards[:, t + 1] + gamma * values[:, t + 1] * n - values[:, t])
        out[:, t] = delta + gamma * lam * c[:, t] * n * out[:, t + 1]
    return out


def advantage_bytes(values: Tensor, rewards: Tensor, done: Tensor, ratio: Tensor) -> int:
    """Bytes one call must move: read the four inputs, write A in float32."""
    inputs = (values, rewards, done, ratio)
    return sum(tensor.nbytes for tensor in inputs) + 4 * values.numel()
