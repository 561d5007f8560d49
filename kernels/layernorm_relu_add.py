"""Layer norm, ReLU and a skip connection: y = relu(norm(x) * g + b) + skip, forward and backward.

    x_MN, skip_MN, g_N, b_N -> y_MN      M rows, N columns; norm(x) = (x - mean) / sqrt(var + eps)

Forward reads x and skip and writes y: 3 MN elements, 192 MiB at 8192 x 4096 in bf16, 47 us at 4.3
TB/s. PyTorch's three kernels move 7 MN. Backward reads x and dy and writes dx, again 3 MN. dskip is
dy itself, and relu's mask is recomputed from x, using the mean and 1/std that forward saves for
each row (8 bytes).

    xh = (x - mean) / std;  dz = dy where xh * g + b > 0, else 0;  w = dz * g
    dx = (w - mean(w) - xh * mean(w * xh)) / std;  dg = sum_M dz * xh;  db = sum_M dz

In forward, one program takes a row, or several short rows. It keeps x in registers, 64 bytes per
thread, until the sums are known, and loads everything else after the sums. So 64 registers are
enough, and 32 warps of several rows fit on an SM: while some wait for x, others sum or write. This
was faster (50.6 against 53 us) than a fixed set of programs that walk over the rows with g and b in
registers and prefetch the next rows. The GPU gives an SM a new row whenever it has finished one, so
no SM is left finishing its share alone, and g and b come from the L1 cache.

Backward has to sum dg and db over all rows. There a fixed set of P programs does walk over the
rows. Each takes every P-th tile, with g, b, dg and db in registers, while the next two tiles are
copied to shared memory (cp.async, 16 bytes per thread). There are no atomics: each program adds its
rows in order and writes 2 N floats (264 x 2 x 16 KiB = 8 MiB, which stays in L2), and a second
launch adds the programs in order. So results repeat bitwise on one GPU model.

Wider rows do not fit into registers and are read twice, 5 MN: first along each row in blocks for
the two means, then down blocks of columns for dx, dg and db. Both passes stream with few registers:
325 us for 8192 x 16384 in bf16, against 468 when one program held a whole row for dx and others
summed the columns.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from nsysflow.kernels.arguments import cdiv, next_power_of_2, require, sms

COLS_MAX = 16_384
"""The widest row: 16 warps of forward hold 32 elements of x per thread."""

_WARP_BYTES = 2048
"""Bytes of x that a warp of forward holds: four 16-byte loads per thread."""

_TILE = 4096
"""Elements of a tile of short rows in backward: 16 per thread of 8 warps."""

_SUMMED_COLS = 8192
"""The widest row for which dg and db fit into registers. At 16 384 columns they spilled, and 8192
rows in bf16 took 2 032 us."""

_ALONG = {"ROWS": 1, "COLS": 2048, "STAGES": 3, "num_warps": 4}
_DOWN = {"ROWS": 8, "COLS": 512, "STAGES": 3, "num_warps": 8}
"""Tiles for wider rows. Of 11 and 22 settings tried at 8192 x 16384 these were the fastest in bf16,
129 us along the rows and 198 us down the columns. In float32 they take 246 and 395 us; the fastest
took 240 and 384 us."""

_ROW_PARTS = 16
"""Parts that the rows are divided into for the column pass: 512 programs at 16 384 columns."""

_PROGRAMS_AT_ONCE = 256
"""Programs whose dg and db are loaded together: sixteen 16-byte loads per thread of 4 warps."""

_SUM_COLS = 32
"""Columns per program of the last launch: 32 floats are one cache line."""


@triton.jit
def _layernorm_relu_add_forward(
    x_ptr, skip_ptr, g_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, rows, cols, eps,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, COLS)[None, :]
    at = row.to(tl.int64)[:, None] * cols + col
    mask = (row < rows)[:, None] & (col < cols)
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, 1) / cols
    tl.store(mean_ptr + row, mean, mask=row < rows)
    centred = tl.where(mask, x - mean[:, None], 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred, 1) / cols + eps)
    tl.store(rstd_ptr + row, rstd, mask=row < rows)
    # after the sums: before, it would take registers, and fewer programs would fit on the SM
    skip = tl.load(skip_ptr + at, mask=mask, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_last")
    b = tl.load(b_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_last")
    z = centred * rstd[:, None] * g.to(tl.float32) + b.to(tl.float32)
    y = tl.maximum(z, 0.0, propagate_nan=tl.PropagateNan.ALL) + skip
    tl.store(y_ptr + at, y, mask=mask)


@triton.jit
def _tile(x_ptr, dy_ptr, mean_ptr, rstd_ptr, row, at, rows, mask):
    """Normalised x, dy, and 1/std of each row (ROWS, 1)."""
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + at, mask=mask, other=0.0).to(tl.float32)
    mean = tl.load(mean_ptr + row, mask=row < rows, other=0.0)[:, None]
    rstd = tl.load(rstd_ptr + row, mask=row < rows, other=0.0)[:, None]
    return (x - mean) * rstd, dy, rstd


@triton.jit
def _past_relu(xh, dy, g, b):
    """dz. Like PyTorch's relu, a NaN passes dy through."""
    return tl.where(xh * g + b <= 0, 0.0, dy)


@triton.jit
def _keep_sums(dg, db, partial_ptr, program, programs, col, cols):
    """Write a program's sums over its rows, for `_layernorm_relu_add_programs`."""
    at = program.to(tl.int64) * cols + col
    tl.store(partial_ptr + at, tl.sum(dg, 0), mask=col < cols)
    tl.store(partial_ptr + programs.to(tl.int64) * cols + at, tl.sum(db, 0), mask=col < cols)


@triton.jit
def _layernorm_relu_add_backward(
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
        xh, dy, rstd = _tile(x_ptr, dy_ptr, mean_ptr, rstd_ptr, row, at, rows, mask)
        dz = _past_relu(xh, dy, g, b)
        dg += dz * xh
        db += dz
        w = dz * g  # 0 beyond the last column, like dy and g
        mean_w = (tl.sum(w, 1) / cols)[:, None]
        mean_wxh = (tl.sum(w * xh, 1) / cols)[:, None]
        tl.store(dx_ptr + at, (w - mean_w - xh * mean_wxh) * rstd, mask=mask)
    col = tl.arange(0, COLS)
    _keep_sums(dg, db, partial_ptr, tl.program_id(0), tl.num_programs(0), col, cols)


@triton.jit
def _layernorm_relu_add_along_rows(
    x_ptr, dy_ptr, g_ptr, b_ptr, mean_ptr, rstd_ptr, means_ptr, rows, cols,
    ROWS: tl.constexpr, COLS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    sum_w = tl.zeros([ROWS, COLS], tl.float32)
    sum_wxh = tl.zeros([ROWS, COLS], tl.float32)
    for first in tl.range(0, cols, COLS, num_stages=STAGES):
        col = first + tl.arange(0, COLS)[None, :]
        at = row.to(tl.int64)[:, None] * cols + col
        mask = (row < rows)[:, None] & (col < cols)
        xh, dy, _rstd = _tile(x_ptr, dy_ptr, mean_ptr, rstd_ptr, row, at, rows, mask)
        g = tl.load(g_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_last")
        b = tl.load(b_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_last")
        g = g.to(tl.float32)
        w = _past_relu(xh, dy, g, b.to(tl.float32)) * g
        sum_w += w
        sum_wxh += w * xh
    tl.store(means_ptr + row, tl.sum(sum_w, 1) / cols, mask=row < rows)
    tl.store(means_ptr + rows + row, tl.sum(sum_wxh, 1) / cols, mask=row < rows)


@triton.jit
def _layernorm_relu_add_down_columns(
    x_ptr, dy_ptr, g_ptr, b_ptr, mean_ptr, rstd_ptr, means_ptr, dx_ptr, partial_ptr, rows, cols,
    ROWS: tl.constexpr, COLS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)
    inside = (col < cols)[None, :]
    g = tl.load(g_ptr + col[None, :], mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + col[None, :], mask=inside, other=0.0).to(tl.float32)
    dg = tl.zeros([ROWS, COLS], tl.float32)
    db = tl.zeros([ROWS, COLS], tl.float32)
    step = tl.num_programs(1) * ROWS
    for first in tl.range(tl.program_id(1) * ROWS, rows, step, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)
        at = row.to(tl.int64)[:, None] * cols + col[None, :]
        mask = (row < rows)[:, None] & inside
        xh, dy, rstd = _tile(x_ptr, dy_ptr, mean_ptr, rstd_ptr, row, at, rows, mask)
        mean_w = tl.load(means_ptr + row, mask=row < rows, other=0.0)[:, None]
        mean_wxh = tl.load(means_ptr + rows + row, mask=row < rows, other=0.0)[:, None]
        dz = _past_relu(xh, dy, g, b)
        dg += dz * xh
        db += dz
        tl.store(dx_ptr + at, (dz * g - mean_w - xh * mean_wxh) * rstd, mask=mask)
    _keep_sums(dg, db, partial_ptr, tl.program_id(1), tl.num_programs(1), col, cols)


@triton.jit
def _layernorm_relu_add_programs(
    partial_ptr, sum_ptr, programs, cols, PROGRAMS: tl.constexpr, COLS: tl.constexpr
):
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
    """Launch settings of a kernel that goes over rows in tiles."""

    programs: int
    rows: int
    cols: int
    warps: int
    registers: int

    @property
    def options(self) -> dict[str, int]:
        """The keyword arguments of the launch."""
        tile = {"ROWS": self.rows, "COLS": self.cols}
        return {**tile, "num_warps": self.warps, "maxnreg": self.registers}


def _forward_launch(x: Tensor) -> _Launch:
    """One program per tile of `x`, (rows, cols)."""
    cols = next_power_of_2(x.shape[1])
    of_a_row = cols * x.element_size()
    rows = max(1, min(_WARP_BYTES // of_a_row, next_power_of_2(x.shape[0])))
    return _Launch(
        programs=cdiv(x.shape[0], rows),
        rows=rows, cols=cols, warps=max(1, rows * of_a_row // _WARP_BYTES),
        registers=64,  # 32 warps an SM
    )  # fmt: skip


def _backward_launch(x: Tensor) -> _Launch:
    """As many programs as run at once, for `x` (rows, cols) with at most `_SUMMED_COLS` columns."""
    cols = next_power_of_2(x.shape[1])
    rows = max(1, min(_TILE // cols, next_power_of_2(x.shape[0])))
    # two or four 16-byte loads of x per thread; more than 16 warps could not have 128 registers
    warps = min(16, max(8, rows * cols * x.element_size() // 1024))
    programs_an_sm = 16 // warps
    return _Launch(
        programs=min(cdiv(x.shape[0], rows), sms(x.device) * programs_an_sm),
        rows=rows, cols=cols, warps=warps,
        # without a limit the compiler takes 164 at 4096 columns in bf16: one program per SM
        registers=128,
    )  # fmt: skip


def _stages(launch: _Launch, x: Tensor) -> int:
    """Pipeline stages: x and dy have stages - 1 buffers, at most 128 of an SM's 227 KiB."""
    return 3 if 2 * launch.rows * launch.cols * x.element_size() <= 2**16 else 2


def _backward_of_short_rows(given: tuple[Tensor, ...], dx: Tensor) -> Tensor:
    """Write dx and return dg and db of each program, (2, programs, cols)."""
    rows, cols = dx.shape
    launch = _backward_launch(dx)
    partial = dx.new_empty(2, launch.programs, cols, dtype=torch.float32)
    _layernorm_relu_add_backward[(launch.programs,)](
        *given, dx, partial, rows, cols, STAGES=_stages(launch, dx), **launch.options
    )
    return partial


def _backward_of_wide_rows(given: tuple[Tensor, ...], dx: Tensor) -> Tensor:
    """The same for rows so wide that dg and db do not fit into registers."""
    rows, cols = dx.shape
    programs = min(_ROW_PARTS, cdiv(rows, _DOWN["ROWS"]))
    means = dx.new_empty(2, rows, dtype=torch.float32)
    partial = dx.new_empty(2, programs, cols, dtype=torch.float32)
    _layernorm_relu_add_along_rows[(cdiv(rows, _ALONG["ROWS"]),)](
        *given, means, rows, cols, **_ALONG
    )
    _layernorm_relu_add_down_columns[(cdiv(cols, _DOWN["COLS"]), programs)](
        *given, means, dx, partial, rows, cols, **_DOWN
    )
    return partial


class _LayernormReluAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, g, b, skip, eps):
        rows, cols = x.shape
        y = torch.empty_like(x)
        mean = torch.empty(rows, dtype=torch.float32, device=x.device)
        rstd = torch.empty_like(mean)
        ctx.save_for_backward(x, g, b, mean, rstd)
        if y.numel() > 0:
            launch = _forward_launch(x)
            _layernorm_relu_add_forward[(launch.programs,)](
                x, skip, g, b, y, mean, rstd, rows, cols, eps, **launch.options
            )
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, g, b, mean, rstd = ctx.saved_tensors
        if not any(ctx.needs_input_grad[:3]):
            return None, None, None, dy, None
        if x.numel() == 0:
            return torch.empty_like(x), torch.zeros_like(g), torch.zeros_like(b), dy, None
        dx = torch.empty_like(x)
        wide = x.shape[1] > _SUMMED_COLS
        backward = _backward_of_wide_rows if wide else _backward_of_short_rows
        partial = backward((x, dy.contiguous(), g, b, mean, rstd), dx)
        _, programs, cols = partial.shape
        sums = torch.empty(2, cols, dtype=g.dtype, device=x.device)
        _layernorm_relu_add_programs[(cdiv(cols, _SUM_COLS), 2)](
            partial, sums, programs, cols,
            PROGRAMS=min(_PROGRAMS_AT_ONCE, next_power_of_2(programs)), COLS=_SUM_COLS, num_warps=4,
        )  # fmt: skip
        return dx, sums[0], sums[1], dy, None


def layernorm_relu_add(
    x: Tensor, g: Tensor, b: Tensor, skip: Tensor, *, eps: float = 1e-5
) -> Tensor:
    """relu(layernorm(x) * g + b) + skip, with gradients for all four tensors.

    A NaN or an infinity in a row of x makes that whole row NaN.

    Args:
        x: (rows, cols), contiguous, bf16, fp16 or fp32; at most `COLS_MAX` columns.
        g, b: (cols,), contiguous, both of the same one of these dtypes.
        skip: like x.
        eps: added to the variance, which is divided by cols rather than cols - 1.

    Returns:
        A new tensor like x, computed in float32 and rounded once.

    Raises:
        ValueError: a shape, dtype, device or stride differs from the above, or rows are too wide.
    """
    require("x", x, (None, None))
    require("g", g, (x.shape[1],), device=x.device)
    require("b", b, (x.shape[1],), dtypes=(g.dtype,), device=x.device)
    require("skip", skip, x.shape, dtypes=(x.dtype,), device=x.device)
    if x.shape[1] > COLS_MAX:
        raise ValueError(f"x must have at most {COLS_MAX} columns, but has {x.shape[1]}")
    y: Tensor = _LayernormReluAdd.apply(x, g, b, skip, eps)
    return y


def layernorm_relu_add_ref(
    x: Tensor, g: Tensor, b: Tensor, skip: Tensor, *, eps: float = 1e-5
) -> Tensor:
    """The definition in plain PyTorch, in float32, or in float64 if the inputs are."""
    wide = torch.promote_types(x.dtype, torch.float32)
    normed = F.layer_norm(x.to(wide), x.shape[1:], g.to(wide), b.to(wide), eps)
    return (F.relu(normed) + skip.to(wide)).to(x.dtype)


def layernorm_relu_add_bytes(x: Tensor, g: Tensor) -> int:
    """Bytes that one direction must move: three tensors like x and two like g.

    Forward reads x, skip, g and b and writes y. Backward reads x and dy and writes dx, dg and db.
    """
    return 3 * x.numel() * x.element_size() + 2 * g.numel() * g.element_size()
