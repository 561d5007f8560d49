"""The Triton kernels of `muon`: a program steps a matrix of any length.

Registers hold G and one tile of X, 128 x 128. The program replaces a tile and adds its part of the
next G while the next tile is copied to shared memory, so X goes to L2 and back once per step: 96
KiB each way for 384 x 128. (With X in registers, in three tiles, the compiler spilled 2.5 KiB per
thread.) Before that, 16 programs per matrix sum the squares of the gradients.
"""

from typing import Final

import triton
import triton.language as tl

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
