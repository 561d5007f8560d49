"""Two linear layers, one after the other, whose results are both kept.

    x (N, D), first (M, D), second (O, M) -> between = x firstᵀ (N, M), y = between secondᵀ (N, O)

At N = 32 768, D = 96, M = 128, O = 384 in bf16 it reads 6.3 MB and writes 8.4 + 25.2 MB: 9.3 us at
4.3 TB/s. Its products are 4 GFLOP, 5 us on tensor cores. It takes 16.3 us with L2 warm; two library
products take 19.4. In the graph of a training step they take 25 as torch.profiler records them: the
second one first sets a counter to zero, and the GPU waits for 5 us after that (H200, 2026-11-28).
Here a program keeps its rows of `between` on the SM, where the second product reads them.

Products are summed in float32, and `between` is rounded before the second one, as by two layers.
Float32 runs on tensor cores as three TF32 products, which keep at least 21 bits.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from nsysflow.kernels.arguments import cdiv, follow, operand, overlap, padded, require, sms

WIDTH_MAX: Final = 128
"""Limit of D and M, padded to powers of two: x, the first weight and `between` are on the SM."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """What a program computes.

    Attributes:
        rows: rows of x.
        part: outputs at a time.
        warps: warps of the program.
    """

    rows: int
    part: int
    warps: int


TILES: Final = {2: Tile(rows=128, part=64, warps=4), 4: Tile(rows=128, part=64, warps=8)}
"""By element size. On an H200, with the sizes above and L2 warm (2026-11-28): 16.8 us in bf16,
where 64 rows took 17.4 and 8 warps 22; 77 us in float32, where 32 outputs at a time took 83, and 64
rows 95 to 143. Stores by descriptors (TMA) took 0.3 to 2.5 us longer, programs that go on to more
rows 2 us."""


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
    x_ptr, first_ptr, second_ptr, between_ptr, y_ptr, rows,
    D: tl.constexpr, MIDDLE: tl.constexpr, OUTPUTS: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr, PART: tl.constexpr, OPERAND: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    follow(OVERLAP)
    dtype = y_ptr.dtype.element_ty
    # int64: rows * OUTPUTS passes 2**31 at 5.6 million rows of 384
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    column, middle = tl.arange(0, WIDTH), tl.arange(0, COLUMNS)
    inside = (row < rows) & (column[None, :] < D)
    x = tl.load(x_ptr + row * D + column[None, :], mask=inside, other=0.0)
    inside = (column[:, None] < D) & (middle[None, :] < MIDDLE)
    first = tl.load(first_ptr + middle[None, :] * D + column[:, None], mask=inside, other=0.0)
    between = tl.dot(x.to(OPERAND), first.to(OPERAND), input_precision="tf32x3").to(dtype)
    inside = (row < rows) & (middle[None, :] < MIDDLE)
    tl.store(between_ptr + row * MIDDLE + middle[None, :], between, mask=inside)
    for start in tl.static_range(0, OUTPUTS, PART):
        output = start + tl.arange(0, PART)
        inside = (middle[:, None] < MIDDLE) & (output[None, :] < OUTPUTS)
        at = second_ptr + output[None, :] * MIDDLE + middle[:, None]
        second = tl.load(at, mask=inside, other=0.0)
        y = tl.dot(between.to(OPERAND), second.to(OPERAND), input_precision="tf32x3").to(dtype)
        inside = (row < rows) & (output[None, :] < OUTPUTS)
        tl.store(y_ptr + row * OUTPUTS + output[None, :], y, mask=inside)


def linear_pair(
    x: Tensor,
    first: Tensor,
    second: Tensor,
    *,
    between: Tensor | None = None,
    y: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Both results. One launch on torch's current stream; capturable. No gradients are recorded.

    Args:
        x: (N, D), contiguous, bf16, fp16 or fp32; D is at most `WIDTH_MAX`.
        first: (M, D), contiguous, of x's dtype; M is at most `WIDTH_MAX`.
        second: (O, M), contiguous, of x's dtype.
        between: (N, M), of x's dtype, contiguous; a new tensor if None.
        y: (N, O), likewise.

    Returns:
        `between` and `y`, each rounded once.

    Raises:
        ValueError: a shape, dtype, device or stride differs from the above.
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
    between = x.new_empty(rows, middle) if between is None else between
    y = x.new_empty(rows, outputs) if y is None else y
    require("between", between, (rows, middle), **like)
    require("y", y, (rows, outputs), **like)
    if rows > 0:
        tile = _tile(x)
        _linear_pair[(cdiv(rows, tile.rows),)](
            x, first, second, between, y, rows, D=width, MIDDLE=middle, OUTPUTS=outputs,
            ROWS=tile.rows,
            WIDTH=padded(width), COLUMNS=padded(middle), PART=tile.part, OPERAND=operand(x),
            num_warps=tile.warps, **overlap(x.device),
        )  # fmt: skip
    return between, y


def linear_pair_ref(x: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """The definition in plain PyTorch: the library sums in float32, and in float64 if the inputs
    are."""
    between = functional.linear(x, first)
    return between, functional.linear(between, second)


def linear_pair_bytes(x: Tensor, first: Tensor, second: Tensor) -> int:
    """Bytes that it must move: read x and the weights, write both results."""
    results = len(x) * (len(first) + len(second)) * x.element_size()
    return x.nbytes + first.nbytes + second.nbytes + results
