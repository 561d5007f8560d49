"""Layer norm, ReLU and a skip connection: y = relu(norm(x) * g + b) + skip, fwd and bwd.

    x_MN, skip_MN, g_N, b_N -> y_MN      M rows, N columns; norm(x) = (x - mean) / sqrt(var + eps)

Forward reads x and skip and writes y: 3 MN elements, 192 MiB at 8192 x 4096 bf16, 47 us at
4.3 TB/s; PyTorch's three kernels move 7 MN. Backward reads x and dy and writes dx, again 3 MN:
dskip is dy itself, and relu's mask is computed again from x, for which mean and 1/std of each row
are kept (8 bytes a row).

    xh = (x - mean) / std;  dz = dy where xh * g + b > 0, else 0;  w = dz * g
    dx = (w - mean(w) - xh * mean(w * xh)) / std;  dg = sum_M dz * xh;  db = sum_M dz

Both directions run a fixed set of programs, two an SM, each walking every P-th tile of rows with g
and b in registers while the next two tiles are on their way into shared memory (cp.async, 16 bytes
a thread): 64 KiB in flight an SM where 4.3 TB/s at 1 us of latency needs 22. Where a tile is one
row of 4096, 8 warps hold 16 elements a thread. dg and db are summed without atomics: each program
adds its rows in order into registers and writes 2 N floats (256 x 2 x 16 KiB = 8 MiB, which stays
in L2), and a second launch adds the programs in order. So results repeat bitwise on one GPU model.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from nsysflow.kernels.arguments import require

COLS_MAX = 16_384
"""The widest row: there dg and db alone are half of an SM's registers, and backward spills."""

_TILE = 4096
"""Elements of a tile of short rows: 16 a thread of 8 warps, two 16-byte loads each in bf16."""

_PROGRAMS_AT_ONCE = 128
"""Whose dg and db are loaded together: eight 16-byte loads a thread of 4 warps."""


@triton.jit
def _forward(
    x_ptr, skip_ptr, g_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, rows, cols, eps,
    ROWS: tl.constexpr, COLS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    col = tl.arange(0, COLS)[None, :]
    g = tl.load(g_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
    step = tl.num_programs(0) * ROWS
    for first in tl.range(tl.program_id(0) * ROWS, rows, step, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)
        at = row.to(tl.int64)[:, None] * cols + col
        mask = (row < rows)[:, None] & (col < cols)
        x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
        skip = tl.load(skip_ptr + at, mask=mask, other=0.0).to(tl.float32)
        mean = tl.sum(x, 1) / cols
        centred = tl.where(mask, x - mean[:, None], 0.0)
        rstd = tl.rsqrt(tl.sum(centred * centred, 1) / cols + eps)
        z = centred * rstd[:, None] * g + b
        y = tl.maximum(z, 0.0, propagate_nan=tl.PropagateNan.ALL) + skip
        tl.store(y_ptr + at, y, mask=mask)
        tl.store(mean_ptr + row, mean, mask=row < rows)
        tl.store(rstd_ptr + row, rstd, mask=row < rows)


@triton.jit
def _backward(
    x_ptr, dy_ptr, g_ptr, b_ptr, mean_ptr, rstd_ptr, dx_ptr, partial_ptr, rows, cols,
    ROWS: tl.constexpr, COLS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    col = tl.arange(0, COLS)[None, :]
    g = tl.load(g_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
    dg = tl.zeros([ROWS, COLS], tl.float32)
    db = tl.zeros([ROWS, COLS], tl.float32)
    step = tl.num_programs(0) * ROWS
    for first in tl.range(tl.program_id(0) * ROWS, rows, step, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)
        at = row.to(tl.int64)[:, None] * cols + col
        mask = (row < rows)[:, None] & (col < cols)
        x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + at, mask=mask, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + row, mask=row < rows, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + row, mask=row < rows, other=0.0)[:, None]
        xh = (x - mean) * rstd
        dz = tl.where(xh * g + b <= 0, 0.0, dy)  # a NaN lets dy through, as PyTorch's relu does
        dg += dz * xh
        db += dz
        w = dz * g  # 0 beyond the last column, where dy and g are
        mean_w = (tl.sum(w, 1) / cols)[:, None]
        mean_wxh = (tl.sum(w * xh, 1) / cols)[:, None]
        tl.store(dx_ptr + at, (w - mean_w - xh * mean_wxh) * rstd, mask=mask)
    mine = partial_ptr + tl.program_id(0).to(tl.int64) * cols + tl.arange(0, COLS)
    last = tl.arange(0, COLS) < cols
    tl.store(mine, tl.sum(dg, 0), mask=last)
    tl.store(mine + tl.num_programs(0).to(tl.int64) * cols, tl.sum(db, 0), mask=last)


@triton.jit
def _add_programs(partial_ptr, sum_ptr, programs, cols, PROGRAMS: tl.constexpr, COLS: tl.constexpr):
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)[None, :]
    which = tl.program_id(1).to(tl.int64)  # 0 is dg, 1 is db
    total = tl.zeros([PROGRAMS, COLS], tl.float32)
    for first in range(0, programs, PROGRAMS):
        program = first + tl.arange(0, PROGRAMS)[:, None]
        at = (which * programs + program) * cols + col
        total += tl.load(partial_ptr + at, mask=(program < programs) & (col < cols), other=0.0)
    at = tl.program_id(0) * COLS + tl.arange(0, COLS)
    tl.store(sum_ptr + which * cols + at, tl.sum(total, 0), mask=at < cols)


@dataclass(frozen=True, kw_only=True)
class _Launch:
    """How many programs walk the rows, in which tiles, with what of an SM."""

    programs: int
    rows: int
    cols: int
    warps: int
    stages: int
    registers: int


def _launch(x: Tensor) -> _Launch:
    """The launch for `x`, (rows, cols), forward or backward."""
    cols = triton.next_power_of_2(x.shape[1])
    rows = max(1, min(_TILE // cols, triton.next_power_of_2(x.shape[0])))
    warps = max(8, rows * cols // 512)
    programs_an_sm = 2 if warps == 8 else 1
    # two tensors in stages - 1 buffers: 128 KiB of an SM's 227 at most
    stages = 3 if 2 * rows * cols * x.element_size() <= 2**16 else 2
    # left alone, the compiler takes 164 for backward at 4096 columns, and one program fits an SM;
    # held to 128 it spills nothing in bf16 and 24 bytes outside the loop in fp32
    registers = 2**16 // (32 * warps * programs_an_sm)
    tiles = triton.cdiv(x.shape[0], rows)
    slots = _sms(x.device) * programs_an_sm
    # as many tiles for each: 8192 rows on 264 slots are 256 programs of 32, not 264 of 31 or 32
    programs = triton.cdiv(tiles, triton.cdiv(tiles, slots))
    return _Launch(
        programs=programs, rows=rows, cols=cols, warps=warps, stages=stages, registers=registers
    )


def _sms(device: torch.device) -> int:
    """The multiprocessors of a GPU; 2 in the interpreter, so that programs loop there too."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


class _LayernormReluAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, g, b, skip, eps):
        rows, cols = x.shape
        y = torch.empty_like(x)
        mean = torch.empty(rows, dtype=torch.float32, device=x.device)
        rstd = torch.empty_like(mean)
        ctx.save_for_backward(x, g, b, mean, rstd)
        if y.numel() > 0:
            launch = _launch(x)
            _forward[(launch.programs,)](
                x, skip, g, b, y, mean, rstd, rows, cols, eps,
                ROWS=launch.rows, COLS=launch.cols, STAGES=launch.stages,
                num_warps=launch.warps, maxnreg=launch.registers,
            )  # fmt: skip
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, g, b, mean, rstd = ctx.saved_tensors
        if not any(ctx.needs_input_grad[:3]):
            return None, None, None, dy, None
        if x.numel() == 0:
            return torch.empty_like(x), torch.zeros_like(g), torch.zeros_like(b), dy, None
        rows, cols = x.shape
        launch = _launch(x)
        dx = torch.empty_like(x)
        partial = torch.empty(2, launch.programs, cols, dtype=torch.float32, device=x.device)
        _backward[(launch.programs,)](
            x, dy.contiguous(), g, b, mean, rstd, dx, partial, rows, cols,
            ROWS=launch.rows, COLS=launch.cols, STAGES=launch.stages,
            num_warps=launch.warps, maxnreg=launch.registers,
        )  # fmt: skip
        sums = torch.empty(2, cols, dtype=g.dtype, device=x.device)
        _add_programs[(triton.cdiv(cols, 32), 2)](  # 32 floats: a cache line
            partial, sums, launch.programs, cols,
            PROGRAMS=_PROGRAMS_AT_ONCE, COLS=32, num_warps=4,
        )  # fmt: skip
        return dx, sums[0], sums[1], dy, None


def layernorm_relu_add(
    x: Tensor, g: Tensor, b: Tensor, skip: Tensor, *, eps: float = 1e-5
) -> Tensor:
    """relu(layernorm(x) * g + b) + skip, with gradients for all four tensors.

    A NaN or an infinity in a row of x makes that whole row NaN.

    Args:
        x: (rows, cols), contiguous, bf16, fp16 or fp32; at most `COLS_MAX` columns.
        g, b: (cols,), contiguous, both of one of these types.
        skip: like x.
        eps: added to the variance, which is over cols, not cols - 1.

    Returns:
        A new tensor like x, computed in float32 and rounded once.

    Raises:
        ValueError: a shape, type, device or stride is another, or the rows are too long.
    """
    require("x", x, (None, None))
    require("g", g, (x.shape[1],), device=x.device)
    require("b", b, (x.shape[1],), dtypes=(g.dtype,), device=x.device)
    require("skip", skip, x.shape, dtypes=(x.dtype,), device=x.device)
    if x.shape[1] > COLS_MAX:
        raise ValueError(f"x must have at most {COLS_MAX} columns, and has {x.shape[1]}")
    y: Tensor = _LayernormReluAdd.apply(x, g, b, skip, eps)
    return y


def layernorm_relu_add_ref(
    x: Tensor, g: Tensor, b: Tensor, skip: Tensor, *, eps: float = 1e-5
) -> Tensor:
    """The definition, in plain PyTorch and float32; float64 in gives float64 through."""
    wide = torch.promote_types(x.dtype, torch.float32)
    normed = F.layer_norm(x.to(wide), x.shape[1:], g.to(wide), b.to(wide), eps)
    return (F.relu(normed) + skip.to(wide)).to(x.dtype)


def layernorm_relu_add_bytes(x: Tensor, g: Tensor) -> int:
    """Bytes that one direction must move: three tensors like x and two like g.

    Forward reads x, skip, g and b and writes y; backward reads x and dy and writes dx, dg and db.
    """
    return 3 * x.numel() * x.element_size() + 2 * g.numel() * g.element_size()
