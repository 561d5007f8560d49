"""Muon's step for small matrices: clip, momentum, orthogonalise, update; two launches.

    scale = min(1, max_norm / (norm + 1e-6)), norm over all gradients g;  g <- scale g
    m <- mu m + g;  u = g + mu m
    X = bf16(u), transposed if rows > cols;  X <- X / max(norm_F(X), 1e-7)
    five times:  G = X Xt,  G <- b G + c G G,  X <- a X + G X     (a, b, c: `TRIPLES`)
    u = X sqrt(max(1, rows / cols)), transposed back;  W <- W (1 - lr wd) - lr u

    W, m (rows, cols) float32; g (rows, cols) float32, bf16 or fp16; working copy of W bf16, if any

(Jordan et al. 2024, kellerjordan.github.io/posts/muon; with five triples for its one.)

X, G and b G + c G G are bf16, each rounded once from a float32 sum; all else is float32.

A matrix of 384 x 128 takes 5 x (2 x 2 x 128 x 128 x 384 + 2 x 128^3) = 147 MFLOP, 25 us at the 6
TFLOP/s that large products reach on an SM, and to share it between SMs they would have to exchange
G, 64 KiB, in each step. So a program takes a matrix and keeps it, all of them at once. Registers
hold G and one tile of X, 128 x 128, at a time: a tile is replaced and its part of the next G added
while the next tile is on its way into shared memory, so that X crosses to L2 and back once a step,
96 KiB each way. (With X in registers, in three tiles, the compiler spills 2.5 KiB a thread; so it
does none.) Before that, 16 programs a matrix add up the squares of the gradients.

Bytes for matrices of 128 x 96, 384 x 128 and 5 x 128 with float32 gradients and no copies: 1.5 MB,
all in L2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
import triton.language as tl
from torch import Tensor

from nsysflow.kernels import muon_kernels
from nsysflow.kernels.arguments import FLOATS, TRITON_TYPES, require, require_current
from nsysflow.kernels.integers import cdiv, next_power_of_2
from nsysflow.kernels.muon_kernels import COLS, PARTS, TRIPLES

SHORT_MAX: Final = 128
"""The shorter side of a matrix: G of 128 x 128 in float32 is a quarter of an SM's registers."""

LONG_MAX: Final = 65_536
"""The longer side: one program takes 85 times as long as for 384, and offsets stay below 2**31."""


@dataclass(frozen=True, kw_only=True)
class MuonTable:
    """Where Muon's matrices lie on the device; made by `muon_table`.

    It keeps their memory alive: a parameter that is given other `data` leaves the table with what
    it held. Two streams must not step the same table at the same time.
    """

    weights: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]
    momenta: tuple[Tensor, ...]
    """Float32, zero at first; to resume, copy into them."""
    working: tuple[Tensor, ...]
    """bf16 copies of the weights that a step also writes; none or one each."""
    entries: Tensor
    """(matrices, 7) int64: addresses of weight, gradient, momentum and working copy (or 0), rows,
    columns, number of the first tile. Matrices without elements are left out."""
    tiles: Tensor
    """(tiles, rows, 128) bf16, scratch: X, its short side padded to `rows`, cut along the other."""
    squares: Tensor
    """(16 matrices,) float32, scratch: sums of squares of parts of the gradients."""
    aligned: bool
    """Whether addresses and rows are multiples of 16 bytes, so that loads may be."""


def muon_table(
    weights: Sequence[Tensor], gradients: Sequence[Tensor], *, working: Sequence[Tensor] = ()
) -> MuonTable:
    """The table from which `muon` steps these matrices, with momenta of zero.

    Building it copies from the host and waits, so it cannot be done while a CUDA graph is captured.

    Args:
        weights: (rows, cols) each, contiguous float32, on one device: the masters. The shorter
            side is at most `SHORT_MAX`, the longer one at most `LONG_MAX`.
        gradients: buffers like the weights that hold the gradients whenever `muon` is called, all
            float32, all bf16 or all fp16: zero them between steps, never replace them.
        working: bf16 copies of the weights, kept up to date by `muon`; none by default.

    Raises:
        ValueError: a matrix has another shape, type, device or stride, or one of the lists has
            another length.
    """
    for name, given in (("gradients", gradients), ("working", working or weights)):
        if len(given) != len(weights):
            raise ValueError(f"{name} must be {len(weights)}, as weights, and are {len(given)}")
    for number, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
        like = weights[0].device
        require(f"weight {number}", weight, (None, None), dtypes=(torch.float32,), device=like)
        if min(weight.shape) > SHORT_MAX or max(weight.shape) > LONG_MAX:
            raise ValueError(
                f"weight {number} must be at most {SHORT_MAX} by {LONG_MAX} or the reverse, and is"
                f" {tuple(weight.shape)}"
            )
        dtypes = FLOATS if number == 0 else (gradients[0].dtype,)
        require(f"gradient {number}", gradient, weight.shape, dtypes=dtypes, device=like)
        if working:
            copy = working[number]
            require(f"copy {number}", copy, weight.shape, dtypes=(torch.bfloat16,), device=like)
    return _table(
        tuple(weight.detach() for weight in weights),
        tuple(gradient.detach() for gradient in gradients),
        tuple(copy.detach() for copy in working),
    )


def _table(
    weights: tuple[Tensor, ...], gradients: tuple[Tensor, ...], working: tuple[Tensor, ...]
) -> MuonTable:
    """The table of matrices that are known to be right."""
    device = weights[0].device if weights else torch.device("cpu")
    momenta = tuple(torch.zeros_like(weight) for weight in weights)
    entries = []
    tiles = 0
    for number, weight in enumerate(weights):
        if weight.numel() == 0:
            continue
        held = (weight, gradients[number], momenta[number], *working[number : number + 1])
        addresses = [tensor.data_ptr() for tensor in held] + [0] * (4 - len(held))
        entries.append([*addresses, *weight.shape, tiles])
        tiles += cdiv(max(weight.shape), COLS)
    short = max((min(weight.shape) for weight in weights), default=1)
    rows = max(16, next_power_of_2(short))  # 16: the least side of a product
    return MuonTable(
        weights=weights,
        gradients=gradients,
        momenta=momenta,
        working=working,
        entries=torch.tensor(entries, dtype=torch.int64, device=device).view(-1, 7),
        tiles=torch.empty(tiles, rows, COLS, dtype=torch.bfloat16, device=device),
        squares=torch.empty(len(entries) * PARTS, dtype=torch.float32, device=device),
        # 8 columns are 16 bytes of the smallest type
        aligned=all(
            cols % 8 == 0 and all(address % 16 == 0 for address in addresses)
            for *addresses, _, cols, _ in entries
        ),
    )


def muon(
    table: MuonTable,
    lr: Tensor,
    *,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    max_norm: float = 0.5,
) -> None:
    """One step of Muon, in place: momenta, weights and working copies. Two launches.

    A NaN in a gradient makes the norm, and with it every weight, NaN; an infinity makes the scale 0
    and its own matrix NaN. The gradients are left as they are.

    Args:
        table: from `muon_table`.
        lr: learning rate, one float32 element on the table's device, so that a captured graph
            follows a schedule.
        momentum: mu.
        weight_decay: wd.
        max_norm: what the norm of all gradients together is clipped to.

    Raises:
        ValueError: `lr` is not such a tensor, or the table is on another GPU than the current one.
    """
    device = table.entries.device
    require_current("table", device)
    require("lr", lr, (1,) if lr.dim() else (), dtypes=(torch.float32,), device=device)
    matrices = len(table.entries)
    if matrices == 0:
        return
    kind = TRITON_TYPES[table.gradients[0].dtype]
    muon_kernels.muon_squares[(matrices, PARTS)](
        table.entries, table.squares, TYPE=kind, BLOCK=4096, ALIGNED=table.aligned, num_warps=4
    )
    muon_kernels.muon_step[(matrices,)](
        table.entries, table.squares, table.tiles, lr, momentum, weight_decay, max_norm,
        ROWS=table.tiles.shape[1],
        TYPE=kind,
        # the interpreter multiplies the bits of bf16 as integers
        OPERAND=tl.bfloat16 if device.type == "cuda" else tl.float32,
        WORKING=len(table.working) > 0,
        ALIGNED=table.aligned,
        num_warps=8,
    )  # fmt: skip
    torch.autograd.graph.increment_version(table.weights + table.working)


def muon_ref(
    weights: Sequence[Tensor],
    gradients: Sequence[Tensor],
    momenta: Sequence[Tensor],
    lr: float,
    *,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    max_norm: float | None = 0.5,
) -> tuple[list[Tensor], list[Tensor]]:
    """The definition: new weights and new momenta, nothing changed in place. None does not clip.

    Float32 weights are stepped in float32, rounded to bf16 where the definition says so; float64
    weights in float64 without any rounding, the mathematics that bf16 stands in for.
    """
    wide = [gradient.to(weight.dtype) for gradient, weight in zip(gradients, weights, strict=True)]
    if max_norm is not None:
        wide = clipped_ref(wide, max_norm)
    new_weights, new_momenta = [], []
    for weight, gradient, old in zip(weights, wide, momenta, strict=True):
        m = momentum * old + gradient
        u = _orthogonalised_ref(gradient + momentum * m)
        new_weights.append(weight * (1 - lr * weight_decay) - lr * u)
        new_momenta.append(m)
    return new_weights, new_momenta


def clipped_ref(gradients: Sequence[Tensor], max_norm: float) -> list[Tensor]:
    """Gradients whose norm, of all together, is at most about `max_norm`."""
    norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
    scale = (max_norm / (norm + 1e-6)).clamp(max=1)
    return [scale * gradient for gradient in gradients]


def _orthogonalised_ref(u: Tensor) -> Tensor:
    """The five steps on one matrix, and the factor of its shape."""

    def rounded(x: Tensor) -> Tensor:
        return x if x.dtype == torch.float64 else x.bfloat16().float()

    rows, cols = u.shape
    x = rounded(u.T if rows > cols else u)
    x = rounded(x / x.square().sum().sqrt().clamp(min=1e-7))
    for a, b, c in TRIPLES:
        g = rounded(x @ x.T)
        x = rounded(a * x + rounded(b * g + c * (g @ g)) @ x)
    factor = math.sqrt(max(1, rows / cols))
    return factor * (x.T if rows > cols else x)


def muon_flops(rows: int, cols: int) -> int:
    """Floating-point operations of the products on one matrix: X Xt, G G and G X in each step."""
    short, long = min(rows, cols), max(rows, cols)
    return len(TRIPLES) * (2 * 2 * short * short * long + 2 * short**3)


def muon_bytes(table: MuonTable) -> int:
    """Bytes a step must move: gradients twice, momenta and weights in and out, copies out."""
    twice = (*table.gradients, *table.momenta, *table.weights)
    return sum(2 * tensor.nbytes for tensor in twice) + sum(copy.nbytes for copy in table.working)
