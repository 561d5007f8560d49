"""Two linear layers with nothing between them, and the gradients of both weights.

    x (N, D), first (M, D), second (O, M) -> y = (x firstᵀ) secondᵀ (N, O)
    dy (N, O) -> moment = dyᵀ x (O, D)
        dfirst = secondᵀ moment (M, D), dsecond = moment firstᵀ (O, M)

x firstᵀ and its gradient are never in memory: both gradients of weights come from one product over
all rows and two products of the weights' size. At N = 32 768, D = 96, M = 128, O = 384 in bf16:

- Forward reads 6.3 MB and writes 25.2 MB: 7.3 us at 4.3 TB/s. Its products are 4 GFLOP, 5 us on
  tensor cores. A program keeps its rows of x firstᵀ on the SM, where the second product reads them.
- Backward reads 6.3 and 25.2 MB, for 2.4 GFLOP. Autograd's three products are 7.2 GFLOP and move 82
  MB: dyᵀ (x firstᵀ), the gradient of x firstᵀ, and that one's product with x.
- The moment has only 36 864 numbers, so programs share the rows as well. Each writes its part; a
  second launch adds the parts in order, so results repeat bitwise. A third does both products.

In a training step forward takes 14.1 us and backward 17.8 (torch.profiler, H200, 2026-11-29).

Products are summed in float32. x firstᵀ is rounded before the second product, as by two layers. The
moment stays in float32; in bf16 its products take 11 bits of it (TF32). In the other dtypes they
run as three TF32 products, which keep at least 21 bits, as all products of float32 do.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from nsysflow.kernels.arguments import cdiv, follow, operand, overlap, padded, require, sms
from nsysflow.kernels.narrow_linear import add_parts

WIDTH_MAX: Final = 128
"""Limit of D and M, padded to powers of two: x, the first weight and x firstᵀ are on the SM."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """What a program computes.

    Attributes:
        rows: rows of x, all at once or in each iteration.
        part: outputs, in each iteration or all at once.
        warps: warps of the program.
        stages: iterations whose loads are in flight; forward has none.
    """

    rows: int
    part: int
    warps: int
    stages: int = 1


TILES: Final = {2: Tile(rows=128, part=64, warps=4), 4: Tile(rows=128, part=64, warps=8)}
"""Of forward, by element size. On an H200, with the sizes above and L2 warm (2026-11-28, when
x firstᵀ was stored, too): 16.8 us in bf16, where 64 rows took 17.4 and 8 warps 22; 77 us in
float32, where 32 outputs at a time took 83, and 64 rows 95 to 143. Stores by descriptors (TMA) took
0.3 to 2.5 us longer, programs that go on to more rows 2 us."""
MOMENTS: Final = {
    2: Tile(rows=64, part=64, warps=4, stages=5),
    4: Tile(rows=32, part=128, warps=8, stages=3),
}
"""Of the moment, by element size. Backward of a step took 38.7 us in bf16 and 152 in float32; with
others it took 38.6 to 58.8 and 153 to 221 (H200, 2026-11-29)."""
SUMMED: Final = 128
"""Elements of the moment per program of the second launch: 0.8 us faster than 64."""
SIDE: Final = 16
"""Rows and columns of a gradient per program of the third: 1.8 us faster than 32."""
STEP: Final = 128
"""Numbers that such a program multiplies at a time: 2 us faster than 64."""


def _tile(x: Tensor) -> Tile:
    """The tile for x. With fewer programs than SMs it has half of the rows: 8192 rows took 8.2 us
    in bf16, and 11.2 with whole tiles. One warpgroup takes these. Two would share the columns
    of a float32 product, and Triton 3.6 lets one of them read outside of shared memory."""
    tile = TILES[x.element_size()]
    if cdiv(len(x), tile.rows) >= sms(x.device):
        return tile
    return replace(tile, rows=tile.rows // 2, warps=4)


@triton.jit
def _linear_pair(
    x_ptr, first_ptr, second_ptr, y_ptr, rows,
    D: tl.constexpr, MIDDLE: tl.constexpr, OUTPUTS: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr, PART: tl.constexpr, OPERAND: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    follow(OVERLAP)
    dtype = y_ptr.dtype.element_ty
    # int64: rows * OUTPUTS passes 2**31 at 5.6 million rows of 384
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    column, middle = tl.arange(0, WIDTH), tl.arange(0, COLUMNS)
    of_x = (row < rows) & (column[None, :] < D)
    x = tl.load(x_ptr + row * D + column[None, :], mask=of_x, other=0.0)
    of_first = (column[:, None] < D) & (middle[None, :] < MIDDLE)
    first = tl.load(first_ptr + middle[None, :] * D + column[:, None], mask=of_first, other=0.0)
    between = tl.dot(x.to(OPERAND), first.to(OPERAND), input_precision="tf32x3").to(dtype)
    for start in tl.static_range(0, OUTPUTS, PART):
        output = start + tl.arange(0, PART)
        of_second = (middle[:, None] < MIDDLE) & (output[None, :] < OUTPUTS)
        at = second_ptr + output[None, :] * MIDDLE + middle[:, None]
        second = tl.load(at, mask=of_second, other=0.0)
        y = tl.dot(between.to(OPERAND), second.to(OPERAND), input_precision="tf32x3").to(dtype)
        of_y = (row < rows) & (output[None, :] < OUTPUTS)
        tl.store(y_ptr + row * OUTPUTS + output[None, :], y, mask=of_y)


@triton.jit
def _linear_pair_moment(
    dy_ptr, x_ptr, parts_ptr, rows,
    D: tl.constexpr, OUTPUTS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
    PART: tl.constexpr, OPERAND: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """PART rows of the moment, summed over some of the rows of x."""
    follow(OVERLAP)
    output, column = tl.program_id(0) * PART + tl.arange(0, PART), tl.arange(0, WIDTH)
    total = tl.zeros([PART, WIDTH], tl.float32)
    for start in range(tl.program_id(1) * ROWS, rows, tl.num_programs(1) * ROWS):
        row = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        of_dy = (row < rows) & (output[None, :] < OUTPUTS)
        dy = tl.load(dy_ptr + row * OUTPUTS + output[None, :], mask=of_dy, other=0.0)
        of_x = (row < rows) & (column[None, :] < D)
        x = tl.load(x_ptr + row * D + column[None, :], mask=of_x, other=0.0)
        total = tl.dot(tl.trans(dy.to(OPERAND)), x.to(OPERAND), total, input_precision="tf32x3")
    to = parts_ptr + (tl.program_id(1) * OUTPUTS + output[:, None]) * D + column[None, :]
    tl.store(to, total, mask=(output[:, None] < OUTPUTS) & (column[None, :] < D))


@triton.jit
def _square(
    left_ptr, right_ptr, out_ptr, square,
    ROWS: tl.constexpr, INNER: tl.constexpr, COLUMNS: tl.constexpr,
    LEFT_ROW: tl.constexpr, LEFT_INNER: tl.constexpr, RIGHT_INNER: tl.constexpr,
    RIGHT_COLUMN: tl.constexpr, SIDE: tl.constexpr, STEP: tl.constexpr, THRICE: tl.constexpr,
):  # fmt: skip
    """A square of the product of (ROWS, INNER) and (INNER, COLUMNS) with these strides."""
    across: tl.constexpr = (COLUMNS + SIDE - 1) // SIDE
    row = (square // across * SIDE + tl.arange(0, SIDE))[:, None]
    column = (square % across * SIDE + tl.arange(0, SIDE))[None, :]
    total = tl.zeros([SIDE, SIDE], tl.float32)
    # no loads ahead: 384 numbers are three iterations
    for start in tl.range(0, INNER, STEP, num_stages=1):
        inner = start + tl.arange(0, STEP)
        of_left = (row < ROWS) & (inner[None, :] < INNER)
        at = left_ptr + row * LEFT_ROW + inner[None, :] * LEFT_INNER
        left = tl.load(at, mask=of_left, other=0.0).to(tl.float32)
        of_right = (inner[:, None] < INNER) & (column < COLUMNS)
        beside = right_ptr + inner[:, None] * RIGHT_INNER + column * RIGHT_COLUMN
        right = tl.load(beside, mask=of_right, other=0.0).to(tl.float32)
        total = tl.dot(left, right, total, input_precision="tf32x3" if THRICE else "tf32")
    to = out_ptr + row * COLUMNS + column
    tl.store(to, total.to(out_ptr.dtype.element_ty), mask=(row < ROWS) & (column < COLUMNS))


@triton.jit
def _linear_pair_gradients(
    moment_ptr, first_ptr, second_ptr, dfirst_ptr, dsecond_ptr, squares,
    D: tl.constexpr, MIDDLE: tl.constexpr, OUTPUTS: tl.constexpr, SIDE: tl.constexpr,
    STEP: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """A square of a gradient: the first programs have the `squares` of dfirst."""
    follow(OVERLAP)
    thrice: tl.constexpr = first_ptr.dtype.element_ty != tl.bfloat16
    square = tl.program_id(0)
    if square < squares:
        _square(
            second_ptr, moment_ptr, dfirst_ptr, square,
            MIDDLE, OUTPUTS, D, 1, MIDDLE, D, 1, SIDE, STEP, thrice,
        )  # fmt: skip
    else:
        _square(
            moment_ptr, first_ptr, dsecond_ptr, square - squares,
            OUTPUTS, D, MIDDLE, D, 1, 1, D, SIDE, STEP, thrice,
        )  # fmt: skip


def linear_pair(x: Tensor, first: Tensor, second: Tensor, *, y: Tensor | None = None) -> Tensor:
    """Both layers. One launch on torch's current stream; capturable. No gradients are recorded.

    Args:
        x: (N, D), contiguous, bf16, fp16 or fp32; D is at most `WIDTH_MAX`.
        first: (M, D), contiguous, of x's dtype; M is at most `WIDTH_MAX`.
        second: (O, M), contiguous, of x's dtype.
        y: (N, O), of x's dtype, contiguous; a new tensor if None.

    Returns:
        `y`. Like x firstᵀ, it is rounded once.

    Raises:
        ValueError: a shape, dtype, device or stride differs from the above.
    """
    rows, width, middle, outputs = _check(x, first, second)
    y = x.new_empty(rows, outputs) if y is None else y
    require("y", y, (rows, outputs), dtypes=(x.dtype,), device=x.device)
    if rows > 0:
        tile = _tile(x)
        _linear_pair[(cdiv(rows, tile.rows),)](
            x, first, second, y, rows, D=width, MIDDLE=middle, OUTPUTS=outputs, ROWS=tile.rows,
            WIDTH=padded(width), COLUMNS=padded(middle), PART=tile.part, OPERAND=operand(x),
            num_warps=tile.warps, **overlap(x.device),
        )  # fmt: skip
    return y


def linear_pair_backward(
    dy: Tensor, x: Tensor, first: Tensor, second: Tensor, *, dfirst: Tensor, dsecond: Tensor
) -> None:
    """Write the gradients of both weights. Three launches on torch's current stream; capturable.

    Args:
        dy: (N, O), contiguous, of x's dtype: the gradient of y.
        x: an argument of `linear_pair`, like the next two.
        dfirst: (M, D), contiguous, bf16, fp16 or fp32: receives the gradient of the first weight.
        dsecond: (O, M), likewise, of the second one.

    Raises:
        ValueError: a shape, dtype, device or stride differs from the above.
    """
    rows, width, middle, outputs = _check(x, first, second)
    require("dy", dy, (rows, outputs), dtypes=(x.dtype,), device=x.device)
    require("dfirst", dfirst, first.shape, device=x.device)
    require("dsecond", dsecond, second.shape, device=x.device)
    if rows == 0:
        dfirst.zero_()
        dsecond.zero_()
        return
    tile = MOMENTS[x.element_size()]
    sizes = {"D": width, "OUTPUTS": outputs, **overlap(x.device)}
    down = cdiv(outputs, tile.part)
    shares = min(max(sms(x.device) // down, 1), cdiv(rows, tile.rows))
    parts = x.new_empty(shares, outputs, width, dtype=torch.float32)
    _linear_pair_moment[(down, shares)](
        dy, x, parts, rows, ROWS=tile.rows, WIDTH=padded(width), PART=tile.part,
        OPERAND=operand(x), num_warps=tile.warps, num_stages=tile.stages, **sizes,
    )  # fmt: skip
    moment = torch.empty_like(parts[0])
    add_parts(parts, moment, summed=SUMMED)
    squares = cdiv(middle, SIDE) * cdiv(width, SIDE)
    _linear_pair_gradients[(squares + cdiv(outputs, SIDE) * cdiv(middle, SIDE),)](
        moment, first, second, dfirst, dsecond, squares, MIDDLE=middle, SIDE=SIDE, STEP=STEP,
        num_warps=2, **sizes,
    )  # fmt: skip


def _check(x: Tensor, first: Tensor, second: Tensor) -> tuple[int, int, int, int]:
    """N, D, M and O.

    Raises:
        ValueError: a shape, dtype, device or stride is wrong.
    """
    require("x", x, (None, None))
    rows, width = x.shape
    like: dict[str, Any] = {"dtypes": (x.dtype,), "device": x.device}
    require("first", first, (None, width), **like)
    require("second", second, (None, len(first)), **like)
    middle, outputs = len(first), len(second)
    if not (1 <= width <= WIDTH_MAX and 1 <= middle <= WIDTH_MAX):
        raise ValueError(
            f"first must be 1 to {WIDTH_MAX} by 1 to {WIDTH_MAX}, but is {tuple(first.shape)}"
        )
    return rows, width, middle, outputs


def linear_pair_ref(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """The definition in plain PyTorch: the library sums in float32, and in float64 if the inputs
    are."""
    return functional.linear(functional.linear(x, first), second)


def linear_pair_bytes(x: Tensor, first: Tensor, second: Tensor) -> int:
    """Bytes that forward must move: read x and the weights, write y."""
    return x.nbytes + first.nbytes + second.nbytes + len(x) * len(second) * x.element_size()
