"""Generalized advantage estimation with the clipped importance ratios of V-trace.

    A[T-1] = 0, and for t = T-2 ... 0
        n = 1 - done[t+1]     rho = min(ratio[t], rho_clip)     c = min(ratio[t], c_clip)
        next  = n * value[t+1] + done[t+1] * bootstrap[t+1]
        delta = rho * (reward[t+1] + gamma * next - value[t])
        A[t]  = delta + gamma * lam * c * n * A[t+1]

    values, rewards, done, ratio (S, T), bootstrap (S, T) or 0 -> A (S, T) float32
    S segments of T steps, T contiguous

(Schulman et al. 2016, arXiv:1506.02438; Espeholt et al. 2018, arXiv:1802.01561.)

Where an episode ends, its trace ends. What differs is the value after its last step: 0 where it
terminated, the value of its last observation where it was truncated, as by a time limit (Pardo et
al. 2018, arXiv:1712.00378). In an environment that resets itself within the step, value[t+1]
belongs to the next episode, so a flag would not do: the value itself is an input, `bootstrap`.
Without it every end counts as a termination, which is wrong for those that are not. In Gymnasium's
SAME_STEP mode `final_obs` is that observation. In NEXT_STEP mode it is recorded as a step of its
own: set done there, and `bootstrap` to the step's own value; the A of that step means nothing.

Four reads and one write; a fifth read with `bootstrap`. At 8192 x 64 in bf16 that is 4 x 1 MiB + 2
MiB, 1.5 us at 4.3 TB/s; in float32 10 MiB, 2.4 us. One thread per row would be a chain of 64 steps,
with rows 128 bytes apart and only 256 warps for 132 SMs. But A[t] is an affine map of A[t+1], and
affine maps compose, so a row is a scan: 8 lanes of 8 steps in bf16, 16 lanes of 4 steps in float32.
That gives 2048 or 4096 warps, 16 or 31 per SM. Each lane has all its reads in flight as four
16-byte loads, and three or four rounds of shuffles replace the chain.

Reads at t+1 would split those loads, so a lane gets the values right of its steps from its
neighbour by shuffle. In Triton that is tl.gather along the lanes, one shuffle each while a row
stays in its warp, and tl.split, which is free while both halves are in one thread.

Few long rows would leave most SMs idle: a warp that walks 131 072 steps in tiles of 256 waits 512
times for memory, 397 us in bf16. So where rows alone are at most 4 warps per SM, they are cut in
pieces, 32 warps of them per SM, in two launches. The first composes each piece's map and stores it,
8 bytes per piece. In the second a warp reads the maps right of its piece, has the A that enters it
after five more rounds of shuffles per 256 maps, and solves its piece. That takes 8.5 us at 8 x
131 072 in bf16, where a copy of as many bytes as must be moved takes 3.0. The inputs are read
twice, the second time from L2 if they fit.

What limits it is latency: two launches that each wait for memory take 2.9 to 3.3 us for one row of
4096 steps. More warps help while a row has at most 256 maps, which a warp reads at once: with 32
per SM instead of 16, 64 x 16 384 took 7.1 us instead of 8.0. Another 256 cost more than the warps
save, so rows that would have more get half as many (H200, 2026-11-29; kernels/RESULTS.md).

Each sum has a fixed order, so results repeat; pieces do not change them by more than a rounding. In
float32 the largest error of 131 072 steps was 2.4e-6 (A up to 12, H200), and 3.6e-5 with lam = 1,
no clipping and an episode's end in 10 000 steps (A up to 28, in the interpreter).

A NaN spreads to earlier steps of its row, as in the equation, and to no other row.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from nsysflow.kernels import advantage_kernels, nvrtc
from nsysflow.kernels.arguments import (
    FLOATS,
    Backend,
    backend_for,
    cdiv,
    next_power_of_2,
    overlap,
    require,
    sms,
)


@dataclass(frozen=True, kw_only=True)
class _Launch:
    """How the work is divided, for both backends."""

    warps: int = 4
    """Small blocks: 512 of them at 8192 x 64 leave 3 % of 132 SMs idle in the last wave."""
    lanes: int = 32
    """The most lanes per row, so that it stays in one warp; longer rows take several rounds."""
    warps_per_sm: int = 32
    """Few long rows are cut so that about this many warps are at work on each SM; half as many
    where a row's maps would not be read at once."""
    least_pieces: int = 8
    """Rows that would be cut into fewer pieces stay whole, as cut rows are read twice: with 4, 1056
    rows of 4096 steps took 43 us in float32 instead of 35."""
    least_tiles: int = 4
    """Rows of fewer tiles stay whole: with 4, 264 rows take 4.2 us either way, in bf16."""
    maps: int = 8
    """The most maps of pieces that a lane reads at once."""


_LAUNCH: Final = _Launch()


def advantage(
    values: Tensor,
    rewards: Tensor,
    done: Tensor,
    ratio: Tensor,
    *,
    bootstrap: Tensor | None = None,
    gamma: float = 0.99,
    lam: float = 0.95,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
    out: Tensor | None = None,
    backend: Backend = "auto",
) -> Tensor:
    """Advantages of S segments of T steps, on torch's current stream; capturable.

    One launch; in Triton two for few long rows. Compiled once per T, number of pieces and set of
    dtypes; `cuda` also once per set of factors.

    Args:
        values: (S, T), contiguous, bf16, fp16 or fp32. So are `rewards` and `ratio`; the dtypes
            may differ.
        rewards: (S, T); the reward of step t was received with the observation of step t.
        done: (S, T), one of those dtypes, bool or uint8: 1 where an episode began at step t.
        ratio: (S, T), probability of the action under the current policy divided by that under the
            policy that recorded it.
        bootstrap: (S, T), bf16, fp16 or fp32: where an episode began at step t because the one
            before it was truncated, the value of that one's last observation; 0 elsewhere.
            None: every end is a termination.
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
    if bootstrap is not None:
        require("bootstrap", bootstrap, values.shape, device=values.device)
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
    inputs = (values, rewards, done, ratio)
    launch(inputs if bootstrap is None else (*inputs, bootstrap), out, factors)
    return out


def _factors(*, gamma: float, lam: float, rho_clip: float, c_clip: float) -> dict[str, float]:
    """The factors by name, in the order of the Triton kernel's arguments."""
    names = ("GAMMA", "GAMMA_LAMBDA", "RHO_CLIP", "C_CLIP")
    return dict(zip(names, map(float, (gamma, gamma * lam, rho_clip, c_clip)), strict=True))


def _launch_triton(inputs: tuple[Tensor, ...], out: Tensor, factors: dict[str, float]) -> None:
    rows, steps = out.shape
    chunk, lanes = _cut(inputs)
    given = inputs if len(inputs) == 5 else (*inputs, None)
    tiles = cdiv(steps, lanes * chunk)
    piece = _tiles_per_piece(rows, tiles, out.device)
    if piece == tiles:
        at_once = min(next_power_of_2(rows), 32 * _LAUNCH.warps // lanes)
        advantage_kernels.solve_rows[(cdiv(rows, at_once),)](
            *given, out, rows, *factors.values(),
            STEPS=steps, ROWS=at_once, LANES=lanes, CHUNK=chunk, num_warps=_LAUNCH.warps,
        )  # fmt: skip
        return
    pieces = cdiv(tiles, piece)
    grid = (cdiv(rows * pieces, _LAUNCH.warps),)
    cut = {"STEPS": steps, "PIECES": pieces, "TILES": piece, "ROWS": _LAUNCH.warps}
    cut |= {"LANES": lanes, "CHUNK": chunk, "num_warps": _LAUNCH.warps}
    maps = torch.empty(2, rows, pieces, dtype=torch.float32, device=out.device)
    advantage_kernels.compose_pieces[grid](*given, maps, rows, *factors.values(), **cut)
    advantage_kernels.solve_pieces[grid](
        *given, out, maps, rows, *factors.values(),
        **cut, MAPS=min(next_power_of_2(cdiv(pieces, lanes)), _LAUNCH.maps), **overlap(out.device),
    )  # fmt: skip


def _tiles_per_piece(rows: int, tiles: int, device: torch.device) -> int:
    """How many tiles of a row one warp solves; all of them where rows fill the GPU."""
    pieces = sms(device) * _LAUNCH.warps_per_sm // rows
    if pieces < _LAUNCH.least_pieces or tiles < _LAUNCH.least_tiles:
        return tiles
    at_once = _LAUNCH.lanes * _LAUNCH.maps
    if pieces > at_once:
        pieces = max(at_once, pieces // 2)
    return cdiv(tiles, min(pieces, tiles))


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
    names = ("VALUES", "REWARDS", "DONE", "RATIO", "BOOTSTRAP")
    return {
        **{name: nvrtc.C_TYPES[tensor.dtype] for name, tensor in zip(names, inputs, strict=False)},
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
    bootstrap: Tensor | None = None,
    gamma: float = 0.99,
    lam: float = 0.95,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> Tensor:
    """The definition: the equation step by step, in float64 if `values` is, else in float32."""
    dtype = torch.float64 if values.dtype == torch.float64 else torch.float32
    values, rewards, ratio = values.to(dtype), rewards.to(dtype), ratio.to(dtype)
    going_on = 1 - done.to(dtype)
    following = values * going_on
    if bootstrap is not None:
        following = following + bootstrap.to(dtype) * done.to(dtype)
    rho, c = ratio.clamp(max=rho_clip), ratio.clamp(max=c_clip)
    steps = [torch.zeros_like(values[:, 0])] if values.shape[1] > 0 else []
    for t in range(values.shape[1] - 2, -1, -1):
        n = going_on[:, t + 1]
        delta = rho[:, t] * (rewards[:, t + 1] + gamma * following[:, t + 1] - values[:, t])
        steps.append(delta + gamma * lam * c[:, t] * n * steps[-1])
    # stacked at the end: torch.compile cannot fuse writes into the columns of a tensor
    return torch.stack(steps[::-1], dim=1) if steps else torch.zeros_like(values)


def advantage_bytes(
    values: Tensor,
    rewards: Tensor,
    done: Tensor,
    ratio: Tensor,
    bootstrap: Tensor | None = None,
) -> int:
    """Bytes that one call must move: read the inputs, write A in float32."""
    read = sum(tensor.nbytes for tensor in (values, rewards, done, ratio))
    return read + (0 if bootstrap is None else bootstrap.nbytes) + 4 * values.numel()
