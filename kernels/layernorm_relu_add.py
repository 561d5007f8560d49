"""Layer norm, ReLU and a skip connection: y = relu(norm(x) * g + b) + skip, fwd and bwd.

    x_MN, skip_MN, g_N, b_N -> y_MN      M rows, N columns; norm(x) = (x - mean) / sqrt(var + eps)

Forward reads x and skip and writes y: 3 MN elements, 192 MiB at 8192 x 4096 bf16, 47 us at
4.3 TB/s; PyTorch's three kernels move 7 MN. Backward reads x and dy and writes dx, again 3 MN:
dskip is dy itself, and relu's mask is computed again from x, for which mean and 1/std of each row
are kept (8 bytes a row).

    xh = (x - mean) / std;  dz = dy where xh * g + b > 0, else 0;  w = dz * g
    dx = (w - mean(w) - xh * mean(w * xh)) / std;  dg = sum_M dz * xh;  db = sum_M dz

Forward is a program a row, or a few short rows: x is in registers, 64 bytes a thread, until the
sums are known, and what they do not need is loaded after them. So 64 registers do, and 32 warps of
several rows are on an SM: while some wait for x, others sum and others write. It was faster (50.6
against 53 us) than a fixed set of programs that walk the rows with g and b in registers and the
next rows on their way: the GPU hands an SM a new row when it has done one, so none is left to
finish its share alone, and g and b come from the L1 cache.

Backward has dg and db to sum over all rows, so there a fixed set of programs does walk every P-th
tile, with g, b, dg and db in registers while the next two tiles come into shared memory (cp.async,
16 bytes a thread). No atomics: each program adds its rows in order and writes 2 N floats (264 x 2 x
16 KiB = 8 MiB, which stays in L2), and a second launch adds the programs in order. So results
repeat bitwise on one GPU model. Rows too wide for that get dx from a program each, and dg and db
from programs that walk down a block of columns: x and dy are read twice, 5 MN.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from nsysflow.kernels.arguments import require
from nsysflow.kernels.integers import cdiv, next_power_of_2

COLS_MAX = 16_384
"""The widest row: 16 warps hold 32 elements of x a thread, and as many of dy in backward."""

_WARP_BYTES = 2048
"""Of x that a warp of forward holds: four 16-byte loads a thread."""

_TILE = 4096
"""Elements of a tile of short rows in backward: 16 a thread of 8 warps."""

_SUMMED_COLS = 8192
"""The widest row beside which dg and db stay in registers: at 16 384 columns they spilled, and 8192
rows in bf16 took 2 032 us where reading x and dy twice took 377."""

_ROW_PARTS, _PART_ROWS, _PART_COLS = 16, 32, 128
"""How they cut a wide matrix for dg and db: 16 programs for each 128 columns, 32 rows a step."""

_PROGRAMS_AT_ONCE = 256
"""Whose dg and db are loaded together: sixteen 16-byte loads a thread of 4 warps."""


@triton.jit
def _forward(
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
    # not before the sums: it would take their registers, and with them programs off the SM
    skip = tl.load(skip_ptr + at, mask=mask, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_last")
    b = tl.load(b_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_last")
    z = centred * rstd[:, None] * g.to(tl.float32) + b.to(tl.float32)
    y = tl.maximum(z, 0.0, propagate_nan=tl.PropagateNan.ALL) + skip
    tl.store(y_ptr + at, y, mask=mask)


@triton.jit
def _tile(x_ptr, dy_ptr, mean_ptr, rstd_ptr, row, at, rows, mask):
    """Normed x, dy, and 1/std of each row, (ROWS, 1)."""
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + at, mask=mask, other=0.0).to(tl.float32)
    mean = tl.load(mean_ptr + row, mask=row < rows, other=0.0)[:, None]
    rstd = tl.load(rstd_ptr + row, mask=row < rows, other=0.0)[:, None]
    return (x - mean) * rstd, dy, rstd


@triton.jit
def _past_relu(xh, dy, g, b):
    """dz. A NaN lets dy through, as PyTorch's relu does."""
    return tl.where(xh * g + b <= 0, 0.0, dy)


@triton.jit
def _keep_sums(dg, db, partial_ptr, program, programs, col, cols):
    """Leave a program's sums over its rows for `_add_programs`."""
    at = program.to(tl.int64) * cols + col
    tl.store(partial_ptr + at, tl.sum(dg, 0), mask=col < cols)
    tl.store(partial_ptr + programs.to(tl.int64) * cols + at, tl.sum(db, 0), mask=col < cols)


@triton.jit
def _backward(
    x_ptr, dy_ptr, g_ptr, b_ptr, mean_ptr, rstd_ptr, dx_ptr, partial_ptr, rows, cols,
    ROWS: tl.constexpr, COLS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    col = tl.arange(0, COLS)[None, :]
    if partial_ptr is not None:
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
        if partial_ptr is None:  # one row a program: no reason to hold them from before x came
            g = tl.load(g_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
            b = tl.load(b_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
        dz = _past_relu(xh, dy, g, b)
        if partial_ptr is not None:
            dg += dz * xh
            db += dz
        w = dz * g  # 0 beyond the last column, where dy and g are
        mean_w = (tl.sum(w, 1) / cols)[:, None]
        mean_wxh = (tl.sum(w * xh, 1) / cols)[:, None]
        tl.store(dx_ptr + at, (w - mean_w - xh * mean_wxh) * rstd, mask=mask)
    if partial_ptr is not None:
        col = tl.arange(0, COLS)
        _keep_sums(dg, db, partial_ptr, tl.program_id(0), tl.num_programs(0), col, cols)


@triton.jit
def _column_sums(
    x_ptr, dy_ptr, g_ptr, b_ptr, mean_ptr, rstd_ptr, partial_ptr, rows, cols,
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
        xh, dy, _rstd = _tile(x_ptr, dy_ptr, mean_ptr, rstd_ptr, row, at, rows, mask)
        dz = _past_relu(xh, dy, g, b)
        dg += dz * xh
        db += dz
    _keep_sums(dg, db, partial_ptr, tl.program_id(1), tl.num_programs(1), col, cols)


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
    """How many programs go over the rows, in which tiles, with what of an SM."""

    programs: int
    rows: int
    cols: int
    warps: int
    registers: int

    @property
    def options(self) -> dict[str, int]:
        """What both kernels are launched with."""
        tile = {"ROWS": self.rows, "COLS": self.cols}
        return {**tile, "num_warps": self.warps, "maxnreg": self.registers}


def _forward_launch(x: Tensor) -> _Launch:
    """A program for each tile of `x`, (rows, cols)."""
    cols = next_power_of_2(x.shape[1])
    of_a_row = cols * x.element_size()
    rows = max(1, min(_WARP_BYTES // of_a_row, next_power_of_2(x.shape[0])))
    return _Launch(
        programs=cdiv(x.shape[0], rows),
        rows=rows, cols=cols, warps=max(1, rows * of_a_row // _WARP_BYTES),
        registers=64,  # 32 warps an SM
    )  # fmt: skip


def _backward_launch(x: Tensor) -> _Launch:
    """For `x`, (rows, cols): as many programs as an H200 runs at once, or one for each wide row."""
    cols = next_power_of_2(x.shape[1])
    rows = max(1, min(_TILE // cols, next_power_of_2(x.shape[0])))
    tiles = cdiv(x.shape[0], rows)
    if cols > _SUMMED_COLS:
        return _Launch(programs=tiles, rows=rows, cols=cols, warps=16, registers=128)
    # two 16-byte loads of x a thread, or four: 16 warps are as many as can keep 128 registers
    warps = min(16, max(8, rows * cols * x.element_size() // 1024))
    programs_an_sm = 16 // warps
    return _Launch(
        programs=min(tiles, _sms(x.device) * programs_an_sm),
        rows=rows, cols=cols, warps=warps,
        # left alone, the compiler takes 164 at 4096 columns in bf16, and one program fits an SM
        registers=128,
    )  # fmt: skip


def _stages(launch: _Launch, x: Tensor) -> int:
    """Of the pipeline: x and dy in stages - 1 buffers, 128 KiB of an SM's 227 at most."""
    if launch.cols > _SUMMED_COLS:
        return 1
    return 3 if 2 * launch.rows * launch.cols * x.element_size() <= 2**16 else 2


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
            launch = _forward_launch(x)
            _forward[(launch.programs,)](
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
        rows, cols = x.shape
        dx = torch.empty_like(x)
        given = (x, dy.contiguous(), g, b, mean, rstd)
        launch = _backward_launch(x)
        stages = _stages(launch, x)
        wide = launch.cols > _SUMMED_COLS
        programs = min(_ROW_PARTS, cdiv(rows, _PART_ROWS)) if wide else launch.programs
        partial = torch.empty(2, programs, cols, dtype=torch.float32, device=x.device)
        _backward[(launch.programs,)](
            *given, dx, None if wide else partial, rows, cols, STAGES=stages, **launch.options
        )
        if wide:
            _column_sums[(cdiv(cols, _PART_COLS), programs)](
                *given, partial, rows, cols,
                ROWS=_PART_ROWS, COLS=_PART_COLS, STAGES=3, num_warps=4,
            )  # fmt: skip
        sums = torch.empty(2, cols, dtype=g.dtype, device=x.device)
        _add_programs[(cdiv(cols, 32), 2)](  # 32 floats: a cache line
            partial, sums, programs, cols,
            PROGRAMS=min(_PROGRAMS_AT_ONCE, next_power_of_2(programs)), COLS=32, num_warps=4,
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
