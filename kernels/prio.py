"""Draw segments by priority, with importance weights that correct the bias of the draws.

    w[s] = (sum over t of |A[s,t]|) ** alpha, 0 where that sum is NaN or infinite
    p[s] = (w[s] + 1e-6) / (sum of w + 1e-6)
    rows ~ p, with replacement     weight = (S * p[rows]) ** -beta

    advantages (S, T) -> rows (draws,) int64, weight (draws,) float32

(Schaul et al. 2016, arXiv:1511.05952. p sums to slightly more than 1; a draw takes s with
probability p[s] divided by that sum, as torch.multinomial does.)

The only traffic is reading A, 2 MiB at 8192 x 64 (0.5 us at 4.3 TB/s). The rest is latency, so the
number of launches matters. There are two: no program can draw before all rows have a weight, and a
second launch is the cheapest way to wait for that. (With a counter for the last block, one SM would
make all draws.)

1. A program computes the weights of a group of rows (16 at 8192 rows: 512 programs) and their sum.
2. A program makes 8 draws (64 programs for 512 draws). Each program sums all groups again, 2 KB
   from L2. One random number picks a group and another a row in it. This takes two short prefix
   sums instead of a long one, and the resolution of a draw is 2**-31 of a group instead of
   everything.

Random numbers are Philox of (seed, draw, offset). The offset is on the device and the first launch
increments it, so a captured graph draws other rows at each replay, and the same seed and offset
always draw the same rows.
"""

from dataclasses import dataclass
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsysflow.kernels.arguments import cdiv, next_power_of_2, require

EPSILON: Final = 1e-6
_EPSILON: Final = tl.constexpr(EPSILON)


@dataclass(frozen=True, kw_only=True)
class Draws:
    """The drawn rows and their importance weights."""

    rows: Tensor
    """(draws,), int64."""
    weight: Tensor
    """(draws,), float32."""


@dataclass(frozen=True, kw_only=True)
class _Launch:
    """How the work is divided."""

    warps: int = 4
    group: int = 16
    """The fewest rows per group: with 64 float32 steps they are 32 bytes per thread."""
    groups: int = 1024
    """The most groups: each program of the second launch sums them all."""
    tile: int = 1024
    """Elements that a program of the first launch reads at once."""
    draws: int = 8
    """The most draws per program of the second launch: 512 draws are 64 programs."""
    drawn_from: int = 4096
    """The most rows that a program of the second launch holds: 32 per thread."""


_LAUNCH: Final = _Launch()


@triton.jit
def _prio_weigh(
    advantages_ptr,
    weights_ptr,
    sums_ptr,
    offset_ptr,
    rows,
    alpha,
    weight_of_zero,
    STEPS: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    SPAN: tl.constexpr,
):
    group = tl.program_id(0).to(tl.int64)
    if group == 0:
        tl.store(offset_ptr, tl.load(offset_ptr) + 1)
    in_group = tl.zeros([ROWS], tl.float32)
    for start in range(0, GROUP, ROWS):
        row = group * GROUP + start + tl.arange(0, ROWS)
        priority = tl.zeros([ROWS], tl.float32)
        for span in range(0, STEPS, SPAN):
            step = span + tl.arange(0, SPAN)
            at = row[:, None] * STEPS + step[None, :]
            mask = (row < rows)[:, None] & (step < STEPS)[None, :]
            advantage = tl.load(advantages_ptr + at, mask=mask, other=0).to(tl.float32)
            priority += tl.sum(tl.abs(advantage), axis=1)
        positive = (priority > 0) & (priority < float("inf"))
        power = tl.exp2(alpha * tl.log2(tl.where(positive, priority, 1.0)))
        weight = tl.where(positive, power, tl.where(priority == 0, weight_of_zero, 0.0))
        weight = tl.where((weight < float("inf")) & (row < rows), weight, 0.0)
        tl.store(weights_ptr + row, weight, mask=row < rows)
        in_group += weight
    tl.store(sums_ptr + group, tl.sum(in_group, axis=0))


@triton.jit(do_not_specialize=["seed"])
def _prio_draw(
    weights_ptr,
    sums_ptr,
    offset_ptr,
    out_rows_ptr,
    out_weight_ptr,
    rows,
    draws,
    seed,
    beta,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    DRAWS: tl.constexpr,
):
    offset = tl.load(offset_ptr)
    groups = (rows + GROUP - 1) // GROUP
    group = tl.arange(0, GROUPS)
    sums = tl.load(sums_ptr + group, mask=group < groups, other=0.0)
    members = tl.minimum(tl.maximum(rows - group * GROUP, 0), GROUP)
    group_reach = tl.cumsum(sums + members * _EPSILON, axis=0)

    draw = tl.program_id(0) * DRAWS + tl.arange(0, DRAWS)
    number = draw.to(tl.uint32)
    low = (offset & 0xFFFFFFFF).to(tl.uint32)
    high = (offset >> 32).to(tl.uint32)
    bits, more_bits, _, _ = tl.philox(seed, number, low, high, number * 0)

    target = tl.uint_to_uniform_float(bits) * tl.max(group_reach, axis=0)
    passed = (group_reach[None, :] <= target[:, None]).to(tl.int32)
    chosen = tl.minimum(tl.sum(passed, axis=1), groups - 1)  # rounding may pass all of them

    place = tl.arange(0, GROUP)
    # int64 for the address; row numbers fit into int32
    row = chosen[:, None].to(tl.int64) * GROUP + place[None, :]
    member = row < rows
    weight = tl.load(weights_ptr + row, mask=member, other=0.0)
    reach = tl.cumsum(tl.where(member, weight + _EPSILON, 0.0), axis=1)
    target = tl.uint_to_uniform_float(more_bits) * tl.max(reach, axis=1)
    passed = (reach <= target[:, None]).to(tl.int32)
    drawn = tl.minimum(tl.sum(passed, axis=1), rows - 1 - chosen * GROUP)
    drawn = tl.minimum(drawn, GROUP - 1)

    own = tl.sum(tl.where(place[None, :] == drawn[:, None], weight, 0.0), axis=1)
    p = (own + _EPSILON) / (tl.sum(sums, axis=0) + _EPSILON)
    importance = tl.exp2(-beta * tl.log2(rows * p))
    tl.store(out_rows_ptr + draw, chosen.to(tl.int64) * GROUP + drawn, mask=draw < draws)
    tl.store(out_weight_ptr + draw, importance, mask=draw < draws)


def prio(
    advantages: Tensor,
    draws: int,
    *,
    seed: int,
    offset: Tensor,
    alpha: float = 0.6,
    beta: float = 0.4,
    out: Draws | None = None,
) -> Draws:
    """Draw segments by priority. Two launches on torch's current stream; capturable.

    Args:
        advantages: (S, T), contiguous, bf16, fp16 or fp32.
        draws: how many rows to draw, with replacement.
        seed: seed of the random numbers, from 0 to 2**63 - 1; a captured graph keeps it.
        offset: (1,), int64: the number of this call for the seed. Each call adds 1.
        alpha: 0 draws uniformly, 1 in proportion to the priorities.
        beta: 0 gives all draws the same weight, 1 corrects the bias completely.
        out: receives the draws; new tensors if None.

    Returns:
        `out`.

    Raises:
        ValueError: a shape, dtype, device or stride differs from the above, a number is out of
            range, or there is no row to draw from.
    """
    require("advantages", advantages, (None, None))
    device = advantages.device
    require("offset", offset, (1,), dtypes=(torch.int64,), device=device)
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must be from 0 to 2**63 - 1, but is {seed}")
    if alpha < 0:
        raise ValueError(f"alpha must be at least 0, but is {alpha}")
    if out is None:
        out = Draws(
            rows=torch.empty(draws, dtype=torch.int64, device=device),
            weight=torch.empty(draws, dtype=torch.float32, device=device),
        )
    require("out.rows", out.rows, (draws,), dtypes=(torch.int64,), device=device)
    require("out.weight", out.weight, (draws,), dtypes=(torch.float32,), device=device)
    if draws == 0:
        return out
    if len(advantages) == 0:
        raise ValueError(
            f"cannot make {draws} draws from 0 rows: advantages is {tuple(advantages.shape)}"
        )
    _weigh_and_draw(advantages, out, seed=seed, offset=offset, alpha=alpha, beta=beta)
    return out


def group_of(rows: int) -> int:
    """Rows per group. Which rows are drawn depends on it."""
    return max(_LAUNCH.group, next_power_of_2(cdiv(rows, _LAUNCH.groups)))


def _weigh_and_draw(
    advantages: Tensor, out: Draws, *, seed: int, offset: Tensor, alpha: float, beta: float
) -> None:
    """Do the two launches."""
    rows, steps = advantages.shape
    group = group_of(rows)
    groups = cdiv(rows, group)
    weights = torch.empty(rows, dtype=torch.float32, device=advantages.device)
    sums = torch.empty(groups, dtype=torch.float32, device=advantages.device)
    span = min(next_power_of_2(max(steps, 1)), _LAUNCH.tile)
    _prio_weigh[(groups,)](
        advantages, weights, sums, offset, rows, float(alpha), 1.0 if alpha == 0 else 0.0,
        STEPS=steps, GROUP=group, ROWS=min(group, _LAUNCH.tile // span), SPAN=span,
        num_warps=_LAUNCH.warps,
    )  # fmt: skip
    draws = len(out.rows)
    at_once = max(min(_LAUNCH.draws, _LAUNCH.drawn_from // group), 1)
    _prio_draw[(cdiv(draws, at_once),)](
        weights, sums, offset, out.rows, out.weight, rows, draws, seed, float(beta),
        GROUP=group, GROUPS=next_power_of_2(groups), DRAWS=at_once, num_warps=_LAUNCH.warps,
    )  # fmt: skip


def probabilities_ref(advantages: Tensor, *, alpha: float = 0.6) -> Tensor:
    """The definition of p, (S,), in float64 if `advantages` is, else in float32."""
    dtype = torch.float64 if advantages.dtype == torch.float64 else torch.float32
    priority = advantages.to(dtype).abs().sum(dim=1)
    weights = torch.where(priority.isfinite(), priority**alpha, 0)
    weights = torch.where(weights.isfinite(), weights, 0)
    return (weights + EPSILON) / (weights.sum() + EPSILON)


def prio_ref(
    advantages: Tensor,
    draws: int,
    *,
    alpha: float = 0.6,
    beta: float = 0.4,
    generator: torch.Generator | None = None,
) -> Draws:
    """The same in plain PyTorch with torch.multinomial: other rows from the same distribution."""
    p = probabilities_ref(advantages, alpha=alpha)
    rows = torch.multinomial(p, draws, replacement=True, generator=generator)
    return Draws(rows=rows, weight=(len(p) * p[rows]) ** -beta)


def prio_bytes(advantages: Tensor, draws: int) -> int:
    """Bytes that one call must move: read the advantages, write each draw's row and weight."""
    return advantages.nbytes + draws * (8 + 4)
