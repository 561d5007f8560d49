"""A step of Muon for small matrices: clip, momentum, orthogonalise, update. Two launches.

    scale = min(1, max_norm / (norm + 1e-6)), norm over all gradients g;  g <- scale g
    m <- mu m + g;  u = g + mu m
    X = bf16(u), transposed if rows > cols;  X <- X / max(norm_F(X), 1e-7)
    five times:  G = X Xt,  G <- b G + c G G,  X <- a X + G X     (a, b, c: `TRIPLES`)
    u = X sqrt(max(1, rows / cols)), transposed back;  W <- W (1 - lr wd) - lr u

    W, m (rows, cols) float32; g (rows, cols) float32, bf16 or fp16; optional bf16 copy of W

(Jordan et al. 2024, kellerjordan.github.io/posts/muon, with five triples instead of one.)

X, G and b G + c G G are bf16, each rounded once from a float32 sum. Everything else is float32.

A matrix of 384 x 128 takes 5 x (2 x 2 x 128 x 128 x 384 + 2 x 128^3) = 147 MFLOP, 25 us at the 6
TFLOP/s that large products reach on one SM. To share it, SMs would have to exchange G, 64 KiB, in
each step. So each matrix has one program, and all programs run at once. Registers hold G and one
tile of X, 128 x 128. The program replaces a tile and adds its part of the next G while the next
tile is copied to shared memory, so X goes to L2 and back once per step, 96 KiB each way. (With X in
registers, in three tiles, the compiler spilled 2.5 KiB per thread.) Before that, 16 programs per
matrix sum the squares of the gradients.

Matrices of 128 x 96, 384 x 128 and 5 x 128 with float32 gradients and no copies are 1.5 MB, all in
L2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsysflow.kernels.arguments import (
    FLOATS,
    TRITON_TYPES,
    cdiv,
    next_power_of_2,
    require,
    require_current,
)

TRIPLES: Final = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)
"""a, b and c of each of the five steps."""

COLS: Final = 128
"""Width of a tile of X: 8 warps can hold its product with G without spilling."""

PARTS: Final = 16
"""Programs that square one gradient: of 65 536 elements, 4096 each."""

_TRIPLES = tl.constexpr(TRIPLES)
_STEPS = tl.constexpr(len(TRIPLES))
_COLS = tl.constexpr(COLS)
_PARTS = tl.constexpr(PARTS)


@triton.jit
def muon_squares(
    entries_ptr, squares_ptr, TYPE: tl.constexpr, BLOCK: tl.constexpr, ALIGNED: tl.constexpr
):
    """Sum the squares of each gradient in PARTS parts."""
    entry = entries_ptr + 7 * tl.program_id(0)
    gradient_ptr = _pointer(tl.load(entry + 1), TYPE, ALIGNED)
    size = tl.load(entry + 4).to(tl.int32) * _columns(entry, ALIGNED)
    part = tl.program_id(1)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(part * BLOCK, size, _PARTS * BLOCK):
        at = start + tl.arange(0, BLOCK)
        gradient = tl.load(gradient_ptr + at, mask=at < size, other=0.0).to(tl.float32)
        total += gradient * gradient
    tl.store(squares_ptr + tl.program_id(0) * _PARTS + part, tl.sum(total))


@triton.jit
def muon_step(
    entries_ptr, squares_ptr, tiles_ptr, lr_ptr, mu, decay, max_norm,
    ROWS: tl.constexpr, TYPE: tl.constexpr, OPERAND: tl.constexpr,
    WORKING: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """Do the rest of the step, one program per matrix."""
    entry = entries_ptr + 7 * tl.program_id(0)
    rows = tl.load(entry + 4).to(tl.int32)
    cols = _columns(entry, ALIGNED)
    tiles = tl.cdiv(tl.maximum(rows, cols), _COLS)
    x_ptr = tiles_ptr + tl.load(entry + 6) * ROWS * _COLS
    in_x = tl.arange(0, ROWS)[:, None] * _COLS + tl.arange(0, _COLS)[None, :]

    gradient_ptr = _pointer(tl.load(entry + 1), TYPE, ALIGNED)
    momentum_ptr = _pointer(tl.load(entry + 2), tl.float32, ALIGNED)
    scale = _clip_scale(squares_ptr, tl.num_programs(0) * _PARTS, max_norm)
    square = 0.0
    for tile in range(tiles):
        if rows > cols:
            x = _with_momentum(gradient_ptr, momentum_ptr, tile, rows, cols, scale, mu, ROWS, True)
        else:
            x = _with_momentum(gradient_ptr, momentum_ptr, tile, rows, cols, scale, mu, ROWS, False)
        x = _rounded(x, OPERAND)
        tl.store(x_ptr + tile * ROWS * _COLS + in_x, x)
        square += tl.sum(x.to(tl.float32) * x.to(tl.float32))
    tl.debug_barrier()  # here and below: other threads load the tiles than stored them

    norm = tl.maximum(tl.sqrt(square), 1e-7, propagate_nan=tl.PropagateNan.ALL)
    _orthogonalise(x_ptr, tiles, norm, ROWS, OPERAND)

    # loaded here, some for the second time: kept during the products they would spill
    rows = tl.load(entry + 4).to(tl.int32)
    cols = _columns(entry, ALIGNED)
    weight_ptr = _pointer(tl.load(entry), tl.float32, ALIGNED)
    copy_ptr = _pointer(tl.load(entry + 3), tl.bfloat16, ALIGNED)
    lr = tl.load(lr_ptr)
    for tile in range(tiles):
        x = tl.load(x_ptr + tile * ROWS * _COLS + in_x).to(OPERAND)
        if rows > cols:
            _write(weight_ptr, copy_ptr, tile, rows, cols, x, lr, decay, ROWS, WORKING, True)
        else:
            _write(weight_ptr, copy_ptr, tile, rows, cols, x, lr, decay, ROWS, WORKING, False)


@triton.jit
def _orthogonalise(x_ptr, tiles, norm, ROWS: tl.constexpr, OPERAND: tl.constexpr):
    """Divide the matrix at x_ptr by its norm and do the five steps, in place."""
    in_x = tl.arange(0, ROWS)[:, None] * _COLS + tl.arange(0, _COLS)[None, :]
    gram = tl.zeros([ROWS, ROWS], tl.float32)
    for tile in tl.range(0, tiles, num_stages=2):
        x = tl.load(x_ptr + tile * ROWS * _COLS + in_x).to(tl.float32)
        x = _rounded(x / norm, OPERAND)
        tl.store(x_ptr + tile * ROWS * _COLS + in_x, x)
        gram = tl.dot(x, tl.trans(x), gram)
    for k in tl.static_range(_STEPS):
        g = _rounded(gram, OPERAND)
        g = _rounded(_TRIPLES[k][1] * g.to(tl.float32) + _TRIPLES[k][2] * tl.dot(g, g), OPERAND)
        gram = tl.zeros([ROWS, ROWS], tl.float32)
        tl.debug_barrier()
        for tile in tl.range(0, tiles, num_stages=2):
            x = tl.load(x_ptr + tile * ROWS * _COLS + in_x).to(OPERAND)
            x = _rounded(_TRIPLES[k][0] * x.to(tl.float32) + tl.dot(g, x), OPERAND)
            tl.store(x_ptr + tile * ROWS * _COLS + in_x, x)
            if k < _STEPS - 1:
                gram = tl.dot(x, tl.trans(x), gram)
    tl.debug_barrier()


@triton.jit
def _clip_scale(squares_ptr, count, max_norm):
    total = tl.zeros([256], tl.float32)
    for start in range(0, count, 256):
        at = start + tl.arange(0, 256)
        total += tl.load(squares_ptr + at, mask=at < count, other=0.0)
    norm = tl.sqrt(tl.sum(total))
    return tl.minimum(1.0, max_norm / (norm + 1e-6), propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _with_momentum(
    gradient_ptr, momentum_ptr, tile, rows, cols, scale, mu, ROWS: tl.constexpr, TALL: tl.constexpr
):
    """Step a tile of the momentum and return the resulting tile of X, (ROWS, COLS)."""
    at, mask = _in_matrix(tile, rows, cols, ROWS, TALL)
    gradient = scale * tl.load(gradient_ptr + at, mask=mask, other=0.0).to(tl.float32)
    momentum = mu * tl.load(momentum_ptr + at, mask=mask, other=0.0) + gradient
    tl.store(momentum_ptr + at, momentum, mask=mask)
    u = gradient + mu * momentum
    return tl.trans(u) if TALL else u


@triton.jit
def _write(
    weight_ptr, copy_ptr, tile, rows, cols, x, lr, decay,
    ROWS: tl.constexpr, WORKING: tl.constexpr, TALL: tl.constexpr,
):  # fmt: skip
    """Step a tile of the weights by a tile of X and write its working copy."""
    at, mask = _in_matrix(tile, rows, cols, ROWS, TALL)
    u = x.to(tl.float32)
    weight = tl.load(weight_ptr + at, mask=mask, other=0.0) * (1 - lr * decay)
    if TALL:
        weight -= lr * tl.sqrt(rows.to(tl.float32) / cols.to(tl.float32)) * tl.trans(u)
    else:
        weight -= lr * u
    tl.store(weight_ptr + at, weight, mask=mask)
    if WORKING:
        tl.store(copy_ptr + at, _rounded(weight, x.dtype), mask=mask)


@triton.jit
def _in_matrix(tile, rows, cols, ROWS: tl.constexpr, TALL: tl.constexpr):
    """Offsets of a tile and whether each is inside: (COLS, ROWS) if TALL, else (ROWS, COLS)."""
    if TALL:
        row = tile * _COLS + tl.arange(0, _COLS)[:, None]
        col = tl.arange(0, ROWS)[None, :]
    else:
        row = tl.arange(0, ROWS)[:, None]
        col = tile * _COLS + tl.arange(0, _COLS)[None, :]
    return row * cols + col, (row < rows) & (col < cols)


@triton.jit
def _rounded(x, OPERAND: tl.constexpr):
    """x rounded to bf16, as OPERAND."""
    if OPERAND.is_fp32():  # the interpreter truncates instead of rounding
        bits = x.to(tl.uint32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return bits.to(tl.float32, bitcast=True)
    else:
        return x.to(OPERAND)


@triton.jit
def _pointer(address, TYPE: tl.constexpr, ALIGNED: tl.constexpr):
    pointer = address.to(tl.pointer_type(TYPE))
    if ALIGNED:
        pointer = tl.multiple_of(pointer, 16)
    return pointer


@triton.jit
def _columns(entry, ALIGNED: tl.constexpr):
    columns = tl.load(entry + 5).to(tl.int32)
    if ALIGNED:
        columns = tl.multiple_of(columns, 8)
    return columns


SHORT_MAX: Final = 128
"""Limit of the shorter side: G of 128 x 128 in float32 is a quarter of an SM's registers."""

LONG_MAX: Final = 65_536
"""Limit of the longer side: offsets stay below 2**31. It takes 85 times as long as 384."""


@dataclass(frozen=True, kw_only=True)
class MuonTable:
    """The addresses of Muon's matrices on the device; made by `muon_table`.

    The table keeps their memory alive: if a parameter's `data` is replaced, the table keeps the old
    memory. Two streams must not step the same table at the same time.
    """

    weights: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]
    momenta: tuple[Tensor, ...]
    """Float32, initially zero. To resume a training, copy into them."""
    working: tuple[Tensor, ...]
    """bf16 copies of the weights, which a step also writes; none, or one per weight."""
    entries: Tensor
    """(matrices, 7) int64: addresses of weight, gradient, momentum and working copy (or 0), rows,
    columns, number of the first tile. Empty matrices are left out."""
    tiles: Tensor
    """(tiles, rows, 128) bf16, scratch: tiles of X, its short side padded to `rows`."""
    squares: Tensor
    """(16 matrices,) float32, scratch: sums of squares of parts of the gradients."""
    aligned: bool
    """Whether addresses and rows are multiples of 16 bytes, so that loads can be 16 bytes."""


def muon_table(
    weights: Sequence[Tensor], gradients: Sequence[Tensor], *, working: Sequence[Tensor] = ()
) -> MuonTable:
    """The table with which `muon` steps these matrices. Momenta are zero.

    Building it copies from the host and waits, so a CUDA graph cannot capture it.

    Args:
        weights: (rows, cols) each, contiguous float32, on one device: the masters. The shorter
            side is at most `SHORT_MAX`, the longer one at most `LONG_MAX`.
        gradients: buffers like the weights, which contain the gradients whenever `muon` is called:
            all float32, all bf16 or all fp16. Zero them between steps, never replace them.
        working: bf16 copies of the weights, kept up to date by `muon`; none by default.

    Raises:
        ValueError: a shape, dtype, device or stride differs from the above, or the lists differ in
            length.
    """
    for name, given in (("gradients", gradients), ("working", working or weights)):
        if len(given) != len(weights):
            raise ValueError(
                f"{name} must be {len(weights)}, as many as weights, but are {len(given)}"
            )
    for number, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
        like = weights[0].device
        require(f"weight {number}", weight, (None, None), dtypes=(torch.float32,), device=like)
        if min(weight.shape) > SHORT_MAX or max(weight.shape) > LONG_MAX:
            raise ValueError(
                f"weight {number} must be at most {SHORT_MAX} by {LONG_MAX} or the reverse, but is"
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
    """The table of matrices that have been checked."""
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
    rows = max(16, next_power_of_2(short))  # 16: the smallest side of a product
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
    """Step momenta, weights and working copies in place. Two launches.

    A NaN in a gradient makes the norm and therefore all weights NaN. An infinity makes the scale 0
    and its own matrix NaN. The gradients do not change.

    Args:
        table: from `muon_table`.
        lr: learning rate, one float32 element on the table's device, so that a captured graph can
            follow a schedule.
        momentum: mu.
        weight_decay: wd.
        max_norm: the norm of all gradients together is clipped to this.

    Raises:
        ValueError: `lr` is not such a tensor, or the table is not on the current GPU.
    """
    device = table.entries.device
    require_current("table", device)
    require("lr", lr, (1,) if lr.dim() else (), dtypes=(torch.float32,), device=device)
    matrices = len(table.entries)
    if matrices == 0:
        return
    kind = TRITON_TYPES[table.gradients[0].dtype]
    muon_squares[(matrices, PARTS)](
        table.entries, table.squares, TYPE=kind, BLOCK=4096, ALIGNED=table.aligned, num_warps=4
    )
    muon_step[(matrices,)](
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
    """The definition: new weights and new momenta; nothing changes in place.

    Float32 weights are stepped in float32 with the definition's roundings to bf16, float64 weights
    in float64 without any rounding. A `max_norm` of None does not clip.
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
    """The gradients, scaled so that their common norm is at most about `max_norm`."""
    norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
    scale = (max_norm / (norm + 1e-6)).clamp(max=1)
    return [scale * gradient for gradient in gradients]


def _orthogonalised_ref(u: Tensor) -> Tensor:
    """One matrix after the five steps, times the factor for its shape."""

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
    """Floating-point operations of one matrix's products: X Xt, G G and G X in each step."""
    short, long = min(rows, cols), max(rows, cols)
    return len(TRIPLES) * (2 * 2 * short * short * long + 2 * short**3)


def muon_bytes(table: MuonTable) -> int:
    """Bytes that a step must move: gradients twice, momenta and weights in and out, copies out."""
    twice = (*table.gradients, *table.momenta, *table.weights)
    return sum(2 * tensor.nbytes for tensor in twice) + sum(copy.nbytes for copy in table.working)
