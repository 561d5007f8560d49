"""A linear layer with few outputs: the product, and both gradients in one pass.

    x (N, H), weight (O, H) -> y = x weightᵀ (N, O)          O at most 64, H at most 512
    gradient (N, O) -> dx = gradient weight (N, H), dweight = gradientᵀ x (O, H)

At N = 32 768, H = 128, O = 5 in bf16, forward reads 8.4 MB and writes 0.33 MB: 2.0 us at 4.3 TB/s.
Backward reads 8.4 MB and a gradient of 0.33 MB (0.66 in float32) and writes 8.4 MB: 4.0 us. A row
of 5 bf16 numbers is 10 bytes, so a library's product cannot load or store rows of y in units of 16
bytes, and dweight sums over all of N into only 640 numbers. Here the O outputs are padded to 16 in
registers, and backward reads x and the gradient once for both results.

Backward has two launches. In the first, a program goes over its share of the rows, 64 at a time in
bf16, keeps its part of dweight in registers and writes it at the end: 132 parts of 2.6 KB. The
second launch adds the parts in order, so results repeat bitwise.

Products are summed in float32. In bf16 and fp16 the gradient is first rounded to that dtype, as
autograd would do. Float32 runs on tensor cores as three TF32 products, which keep at least 21 bits.
With float32 arithmetic, forward took 41 us at this size on an H200 (2026-11-20).
"""

from dataclasses import dataclass
from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from nsysflow.kernels.arguments import (
    cdiv,
    follow,
    next_power_of_2,
    operand,
    overlap,
    padded,
    require,
)

OUT_MAX: Final = 64
WIDTH_MAX: Final = 512
WEIGHT_BYTES_MAX: Final = 65_536
"""Limit of the weight with both sides padded to powers of two; every bf16 size is within it.
Backward keeps the weight in shared memory, in float32 twice for the three products: 64 by 512 would
take 369 of 227 KB, 32 by 512 takes 199."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """The part of x that a program holds at a time.

    Attributes:
        bytes: its size.
        warps: warps for up to 128 columns and 16 outputs; larger sizes take more.
    """

    bytes: int
    warps: int


# By element size in bytes. The fastest of 12 settings each at N = 32 768, H = 128, O = 5 on an H200
# (2026-11-20, L2 warm): forward 3.0 us in bf16 and 7.7 in float32, where 4 warps took 11.5;
# backward 16.4 in float32, where the setting of bf16 took 19.3. For backward in bf16 the benchmark
# decided: 264 programs of 2 warps with tiles of 8 KiB took 8.7 us there, these take 7.3. When
# called repeatedly with nothing in between, the others were faster, 8.2 against 9.2 us.
FORWARD: Final = {2: Tile(bytes=16_384, warps=4), 4: Tile(bytes=16_384, warps=1)}
BACKWARD: Final = {2: Tile(bytes=16_384, warps=4), 4: Tile(bytes=8192, warps=4)}
PARTS: Final = {2: 132, 4: 264}
"""Programs of backward, which each write a part of dweight: one or two per SM of an H200."""

SUMMED: Final = 8
"""Elements of dweight per program of the second launch. 80 programs for 640 elements were 0.5 us
faster than 20."""
PARTS_AT_ONCE: Final = 512
"""Parts that a program of the second launch adds at a time."""


@triton.jit
def _weight(
    weight_ptr, H: tl.constexpr, OUTPUTS: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr
):
    """The weight (OUT, WIDTH), padded with zeros."""
    output = tl.arange(0, OUT)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    return tl.load(
        weight_ptr + output * H + column, mask=(output < OUTPUTS) & (column < H), other=0.0
    )


@triton.jit
def _narrow_linear_forward(
    x_ptr, weight_ptr, y_ptr, rows, H: tl.constexpr, OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr, OPERAND: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    follow(OVERLAP)
    # int64: rows * H passes 2**31 at 17 million rows of 128
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    output = tl.arange(0, OUT)[None, :]
    x = tl.load(x_ptr + row * H + column, mask=(row < rows) & (column < H), other=0.0)
    weight = _weight(weight_ptr, H, OUTPUTS, WIDTH, OUT)
    y = tl.dot(x.to(OPERAND), tl.trans(weight.to(OPERAND)), input_precision="tf32x3")
    mask = (row < rows) & (output < OUTPUTS)
    tl.store(y_ptr + row * OUTPUTS + output, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _narrow_linear_backward(
    gradient_ptr, x_ptr, weight_ptr, dx_ptr, parts_ptr, rows, tiles, H: tl.constexpr,
    OUTPUTS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr,
    OPERAND: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    follow(OVERLAP)
    column = tl.arange(0, WIDTH)[None, :]
    output = tl.arange(0, OUT)[None, :]
    dtype = dx_ptr.dtype.element_ty
    weight = _weight(weight_ptr, H, OUTPUTS, WIDTH, OUT).to(OPERAND)
    total = tl.zeros([WIDTH, OUT], tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        row = (tile * ROWS + tl.arange(0, ROWS).to(tl.int64))[:, None]
        inside = (row < rows) & (column < H)
        x = tl.load(x_ptr + row * H + column, mask=inside, other=0.0).to(OPERAND)
        mask = (row < rows) & (output < OUTPUTS)
        gradient = tl.load(gradient_ptr + row * OUTPUTS + output, mask=mask, other=0.0)
        gradient = gradient.to(dtype).to(OPERAND)
        dx = tl.dot(gradient, weight, input_precision="tf32x3")
        tl.store(dx_ptr + row * H + column, dx.to(dtype), mask=inside)
        total = tl.dot(tl.trans(x), gradient, total, input_precision="tf32x3")
    at = output * H + tl.arange(0, WIDTH)[:, None]
    mask = (output < OUTPUTS) & (tl.arange(0, WIDTH)[:, None] < H)
    tl.store(parts_ptr + tl.program_id(0) * OUTPUTS * H + at, total, mask=mask)


@triton.jit(do_not_specialize=["parts"])
def _narrow_linear_sum(
    parts_ptr, dweight_ptr, parts, numel, PARTS: tl.constexpr, SUMMED: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    follow(OVERLAP)
    at = tl.program_id(0) * SUMMED + tl.arange(0, SUMMED)
    total = tl.zeros([PARTS, SUMMED], tl.float32)
    for start in range(0, parts, PARTS):
        part = (start + tl.arange(0, PARTS)).to(tl.int64)[:, None]
        mask = (part < parts) & (at[None, :] < numel)
        total += tl.load(parts_ptr + part * numel + at[None, :], mask=mask, other=0.0)
    sums = tl.sum(total, axis=0)
    tl.store(dweight_ptr + at, sums.to(dweight_ptr.dtype.element_ty), mask=at < numel)


def _cut(x: Tensor, outputs: int, tile: Tile) -> dict[str, Any]:
    """The constants and options of a launch: tile sizes, dtype of the products, warps, stages."""
    width, out = padded(x.shape[1]), padded(outputs)
    return {
        "H": x.shape[1],
        "OUTPUTS": outputs,
        # the gradient's tile has as many rows: 512 rows of 64 outputs took 281 KB of shared memory
        "ROWS": max(tile.bytes // (max(width, out) * x.element_size()), 16),
        "WIDTH": width,
        "OUT": out,
        "OPERAND": operand(x),
        # the weight and its gradient are spread over all threads
        "num_warps": min(tile.warps * max(width // 128, 1) * (out // 16), 8),
        # with the largest weight, a third tile in flight is 1 KB too much
        "num_stages": 2 if width * out * x.element_size() == WEIGHT_BYTES_MAX else 3,
        **overlap(x.device),
    }


def _check(x: Tensor, weight: Tensor) -> None:
    """Refuse arguments that the kernels would misread.

    Raises:
        ValueError: a shape, dtype, device or stride is wrong, or the weight is too large.
    """
    require("x", x, (None, None))
    require("weight", weight, (None, x.shape[1]), dtypes=(x.dtype,), device=x.device)
    outputs, width = weight.shape
    if not (1 <= outputs <= OUT_MAX and 1 <= width <= WIDTH_MAX):
        raise ValueError(
            f"weight must be 1 to {OUT_MAX} by 1 to {WIDTH_MAX}, but is {tuple(weight.shape)}"
        )
    padded_bytes = padded(outputs) * padded(width) * weight.element_size()
    if padded_bytes > WEIGHT_BYTES_MAX:
        raise ValueError(
            f"weight must be at most {WEIGHT_BYTES_MAX:,} bytes when padded to powers of two, but"
            f" {tuple(weight.shape)} is {padded_bytes:,} bytes"
        )


class _NarrowLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return _run_forward(x, weight, x.new_empty(len(x), len(weight)))

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        dx, dweight = torch.empty_like(x), torch.empty_like(weight)
        narrow_linear_backward(gradient.contiguous(), x, weight, dx=dx, dweight=dweight)
        return dx, dweight


def _run_forward(x: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    if len(x) > 0:
        cut = _cut(x, len(weight), FORWARD[x.element_size()])
        _narrow_linear_forward[(cdiv(len(x), cut["ROWS"]),)](x, weight, out, len(x), **cut)
    return out


def narrow_linear(x: Tensor, weight: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x weightᵀ, with gradients for both. One launch on torch's current stream; capturable.

    Args:
        x: (N, H), contiguous, bf16, fp16 or fp32; H is at most `WIDTH_MAX`.
        weight: (O, H), contiguous, of x's dtype; O is at most `OUT_MAX`. `WEIGHT_BYTES_MAX` also
            limits it.
        out: (N, O), of x's dtype, contiguous; no gradient is recorded for it. A new tensor if None.

    Returns:
        `out`, rounded once.

    Raises:
        ValueError: a shape, dtype, device or stride differs from the above.
    """
    _check(x, weight)
    if out is not None:
        require("out", out, (len(x), len(weight)), dtypes=(x.dtype,), device=x.device)
        return _run_forward(x, weight, out)
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        differentiable: Tensor = _NarrowLinear.apply(x, weight)
        return differentiable
    return _run_forward(x, weight, x.new_empty(len(x), len(weight)))


def narrow_linear_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, *, dx: Tensor, dweight: Tensor
) -> None:
    """Write both gradients. Two launches on torch's current stream; capturable.

    Args:
        gradient: (N, O), contiguous, bf16, fp16 or fp32: the gradient of the layer's output.
        x: the argument of `narrow_linear`.
        weight: the argument of `narrow_linear`.
        dx: (N, H), of x's dtype: receives the gradient of x. It must not be x.
        dweight: (O, H), contiguous, bf16, fp16 or fp32: receives the gradient of the weight.

    Raises:
        ValueError: a shape, dtype, device or stride differs from the above.
    """
    _check(x, weight)
    rows, outputs = len(x), len(weight)
    like = x.device
    require("gradient", gradient, (rows, outputs), device=like)
    require("dx", dx, x.shape, dtypes=(x.dtype,), device=like)
    require("dweight", dweight, weight.shape, device=like)
    if rows == 0:
        dweight.zero_()
        return
    cut = _cut(x, outputs, BACKWARD[x.element_size()])
    tiles = cdiv(rows, cut["ROWS"])
    programs = min(tiles, PARTS[x.element_size()])
    parts = x.new_empty(programs, outputs, x.shape[1], dtype=torch.float32)
    _narrow_linear_backward[(len(parts),)](gradient, x, weight, dx, parts, rows, tiles, **cut)
    add_parts(parts, dweight)


def add_parts(parts: Tensor, dweight: Tensor, *, summed: int = SUMMED) -> None:
    """Write the sum of parts (P, O, H), float32, to `dweight` (O, H), always in the same order.

    A program adds `summed` elements.
    """
    _narrow_linear_sum[(cdiv(dweight.numel(), summed),)](
        parts, dweight, len(parts), dweight.numel(),
        PARTS=min(next_power_of_2(len(parts)), PARTS_AT_ONCE), SUMMED=summed, num_warps=4,
        **overlap(dweight.device),
    )  # fmt: skip


def narrow_linear_ref(x: Tensor, weight: Tensor) -> Tensor:
    """The definition in plain PyTorch, in float32, or in float64 if the inputs are."""
    wide = torch.promote_types(x.dtype, torch.float32)
    return (x.to(wide) @ weight.to(wide).T).to(x.dtype)


def narrow_linear_bytes(x: Tensor, weight: Tensor) -> int:
    """Bytes that forward must move: read x and the weight, write y."""
    return x.nbytes + weight.nbytes + len(x) * len(weight) * x.element_size()


def narrow_linear_backward_bytes(x: Tensor, weight: Tensor) -> int:
    """Bytes that backward must move: read x, the gradient and the weight, write both gradients.

    Assumes that the gradient has x's dtype.
    """
    return 2 * x.nbytes + 2 * weight.nbytes + len(x) * len(weight) * x.element_size()
