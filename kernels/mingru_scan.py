"""MinGRU's recurrence with its gates (Feng et al. 2024, arXiv:2410.01201), forward and backward.

    combined (B, T, 3H) = [hidden, gate, proj], state (B, 1, H) -> out (B, T, H), final (B, 1, H)

    z = S(gate)   c = hidden + ½ if hidden ≥ 0 else S(hidden)   S(x) = 1 / (1 + exp(-x))
    h_t = (1 - z)·h_{t-1} + z·c   h_{-1} = state   out = S(proj)·h_t   final = h_{T-1}

Backward, from t = T-1 down, with d the gradient of h_t and dh_{T-1} = dfinal:

    d = dh_t + dout·S(proj)               dproj = dout·h_t·S(proj)·(1 - S(proj))
    dhidden = d·z·c'                      c' = 1 if hidden ≥ 0 else c·(1 - c)
    dgate = d·(c - h_{t-1})·z·(1 - z)     dh_{t-1} = d·(1 - z)

This is the linear form, without logarithms, so a state of zero needs no special case.

Figures for B=512, T=64, H=128 in bf16, on 132 SMs at 4.3 TB/s and 1.755 GHz:

- Bytes. Forward reads 25.2 MB and writes 8.4 MB: 7.8 us. Backward reads the same 25.2 MB and 8.4 MB
  of dout, and writes 25.2 MB: 13.7 us.
- Backward needs every h_{t-1}. Saving them in float32 would write and read 16.8 MB, 3.9 us each
  way. Saving them in bf16 would halve that but round h. Recomputing them in a separate pass would
  read and compute the gates twice: 16.8 MB and 2/3 of the exponentials. So forward saves only h
  before each chunk of 8 steps, 2.1 MB or 0.5 us each way, and backward processes a chunk forwards
  and then backwards with its inputs in registers: each byte is read once and each gate computed
  once. Without gradients nothing is saved.
- Parallelism. There are B·H = 65 536 recurrences. A program is one warp with two neighbouring
  channels per thread (4-byte loads, one 128-byte line per row): 1024 programs, 7.8 per SM, all
  running at once. Supplying an SM with 14 B per clock at a latency of 800 clocks takes 11 kB in
  flight. Each program loads the next chunk into registers before it processes the current one:
  24 kB per SM in forward, 32 kB in backward.
- Instructions, from the loops compiled for sm_90. Forward takes 36 per channel and step, 5 of them
  on the unit with 1/8 of the rate, so 40 issue slots: 5.7 us. Backward takes 57: 8.1 us. Both are
  hidden by the memory traffic. To get there, S(gate) and S(hidden) share a reciprocal, and a
  reciprocal is rsqrt squared: two instructions, against five for Triton's division 1/x. The kernels
  use 96 and 177 registers.

What backward reads leaves L2 first, so that dcombined is still there for the products that read it
next: 2.8 us less in a training step (H200, 2026-11-29).

Where a linear layer with few outputs follows, `mingru_scan_linear_backward` computes its gradients
too. dout = gradient weight and dweight = gradientᵀ out are a few products per step and channel, and
weight and dweight stay in registers, 223 in all for five outputs. dout is neither written nor read,
and out is not read: 25.2 MB less. That takes 22.9 us, `narrow_linear`'s backward and this one 31.2
(H200, 2026-11-28).
"""

from typing import Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nsysflow.kernels import mingru_scan_kernels
from nsysflow.kernels.arguments import cdiv, overlap, require
from nsysflow.kernels.narrow_linear import add_parts

BLOCK: Final = 64
"""Channels per program: one warp, two channels per thread, so a bf16 row is a 128-byte line."""
CHUNK_BYTES: Final = 16
"""Bytes of one channel's chunk in one input: 8 steps of bf16 or 4 of float32. Two chunks of
backward's four inputs then take 64 registers."""

OUT_MAX: Final = 8
"""Outputs of a linear layer whose gradients are computed with those of the scan: two channels per
thread have their weights and sums in 4 registers per output."""


def _check(combined: Tensor, state: Tensor) -> None:
    """Refuse arguments that the kernels would misread.

    Raises:
        ValueError: a shape, dtype, device or stride is wrong.
    """
    require("combined", combined, (None, None, None))
    batch, _, width = combined.shape
    if width % 3 != 0:
        raise ValueError(f"combined must be (B, T, 3H), but is {tuple(combined.shape)}")
    require("state", state, (batch, 1, width // 3), device=combined.device)


def _grid(combined: Tensor) -> tuple[int]:
    return (combined.shape[0] * cdiv(combined.shape[2] // 3, BLOCK),)


def _cut(combined: Tensor) -> dict[str, int | bool]:
    """The constants by which programs divide `combined` and what forward saves."""
    steps = CHUNK_BYTES // combined.element_size()
    return {
        "H": combined.shape[2] // 3,
        "STEPS": steps,
        "WHOLE": combined.shape[1] % steps == 0,
        "BLOCK": BLOCK,
        "num_warps": 1,
        **overlap(combined.device),
    }


def _run_forward(combined: Tensor, state: Tensor, saved: Tensor | None) -> tuple[Tensor, Tensor]:
    batch, steps, width = combined.shape
    out = combined.new_empty(batch, steps, width // 3)
    if out.numel() == 0:
        return out, state.clone()
    final = torch.empty_like(state)
    mingru_scan_kernels.mingru_scan_forward[_grid(combined)](
        combined, state, out, final, saved, steps, SAVE=saved is not None, **_cut(combined)
    )
    return out, final


def _saved_shape(combined: Tensor) -> tuple[int, int, int]:
    """The shape of what forward saves for backward: h before each chunk."""
    batch, steps, width = combined.shape
    return batch, cdiv(steps, CHUNK_BYTES // combined.element_size()), width // 3


def _run_saving(combined: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    saved = combined.new_empty(_saved_shape(combined), dtype=torch.float32)
    return *_run_forward(combined, state, saved), saved


def mingru_scan_forward(combined: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """out and final of `mingru_scan` without autograd, and h before each chunk, float32.

    `mingru_scan_backward` takes the last of the three.

    Raises:
        ValueError: as for `mingru_scan`.
    """
    _check(combined, state)
    return _run_saving(combined, state)


def mingru_scan_backward(
    combined: Tensor,
    saved: Tensor,
    dout: Tensor,
    dfinal: Tensor | None = None,
    *,
    state_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradients of combined and state. One launch on torch's current stream; capturable.

    Args:
        combined: the argument of `mingru_scan_forward`.
        saved: the third result of `mingru_scan_forward`.
        dout: (B, T, H), contiguous, bf16, fp16 or fp32: the gradient of out.
        dfinal: (B, 1, H), contiguous, one of these dtypes: the gradient of final; None means zero.
        state_dtype: the dtype of the state's gradient; that of combined if None.

    Raises:
        ValueError: a shape, dtype, device or stride differs from the above.
    """
    batch, steps, channels = _check_backward(combined, saved)
    device = combined.device
    require("dout", dout, (batch, steps, channels), device=device)
    if dfinal is not None:
        require("dfinal", dfinal, (batch, 1, channels), device=device)
    dcombined = torch.empty_like(combined)
    dstate = combined.new_empty(batch, 1, channels, dtype=state_dtype or combined.dtype)
    if combined.numel() == 0:
        return dcombined, dstate.zero_() if dfinal is None else dstate.copy_(dfinal)
    mingru_scan_kernels.mingru_scan_backward[_grid(combined)](
        combined, saved, dout, dfinal, dcombined, dstate, None, None, steps,
        OUTPUTS=0, **_cut(combined),
    )  # fmt: skip
    return dcombined, dstate


def mingru_scan_linear_backward(
    combined: Tensor, saved: Tensor, gradient: Tensor, weight: Tensor, *, dweight: Tensor
) -> Tensor:
    """Gradients of combined and of the weight of a linear layer of out, whose outputs are few.

    Neither out nor its gradient is read from memory, or written: out is recomputed. Two launches on
    torch's current stream; capturable.

    Args:
        combined: the argument of `mingru_scan_forward`.
        saved: the third result of `mingru_scan_forward`.
        gradient: (B·T, O), contiguous, bf16, fp16 or fp32: the gradient of out weightᵀ; O is at
            most `OUT_MAX`.
        weight: (O, H), contiguous, one of these dtypes.
        dweight: (O, H), contiguous, one of these dtypes: receives the gradient of the weight.

    Returns:
        The gradient of combined.

    Raises:
        ValueError: a shape, dtype, device or stride differs from the above.
    """
    batch, steps, channels = _check_backward(combined, saved)
    device = combined.device
    require("weight", weight, (None, channels), device=device)
    outputs = len(weight)
    if not 1 <= outputs <= OUT_MAX:
        raise ValueError(f"weight must have 1 to {OUT_MAX} rows, but has {outputs}")
    require("gradient", gradient, (batch * steps, outputs), device=device)
    require("dweight", dweight, weight.shape, device=device)
    dcombined = torch.empty_like(combined)
    if combined.numel() == 0:
        dweight.zero_()
        return dcombined
    dstate = combined.new_empty(batch, 1, channels)
    parts = combined.new_empty(batch, outputs, channels, dtype=torch.float32)
    mingru_scan_kernels.mingru_scan_backward[_grid(combined)](
        combined, saved, gradient, None, dcombined, dstate, weight, parts, steps,
        OUTPUTS=outputs, **_cut(combined),
    )  # fmt: skip
    add_parts(parts, dweight)
    return dcombined


def _check_backward(combined: Tensor, saved: Tensor) -> tuple[int, int, int]:
    """B, T and H.

    Raises:
        ValueError: a shape, dtype, device or stride is wrong.
    """
    require("combined", combined, (None, None, None))
    batch, steps, width = combined.shape
    shape, device = _saved_shape(combined), combined.device
    require("saved", saved, shape, dtypes=(torch.float32,), device=device)
    return batch, steps, width // 3


class _MingruScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, combined, state):
        out, final, saved = _run_saving(combined, state)
        ctx.save_for_backward(combined, saved)
        ctx.state_dtype = state.dtype
        ctx.set_materialize_grads(False)
        return out, final

    @staticmethod
    @once_differentiable
    def backward(ctx, dout, dfinal):
        combined, saved = ctx.saved_tensors
        batch, steps, width = combined.shape
        if dout is None:
            dout = combined.new_zeros(batch, steps, width // 3)
        if dfinal is not None:
            dfinal = dfinal.contiguous()
        return mingru_scan_backward(
            combined, saved, dout.contiguous(), dfinal, state_dtype=ctx.state_dtype
        )


def mingru_scan(combined: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """MinGRU over T steps, with gradients for both arguments. One launch in each direction.

    A NaN or an infinity in hidden or gate affects its channel from its step on; one in proj affects
    only its element. Compiled once per H, dtype, and whether T is a multiple of the chunk.

    Args:
        combined: (B, T, 3H), contiguous, bf16, fp16 or fp32: hidden, gate and proj side by side.
        state: (B, 1, H), contiguous, one of these dtypes: h before the first step.

    Returns:
        out (B, T, H) in combined's dtype and final (B, 1, H) in state's, computed in float32 and
        rounded once. S is accurate to a few units in the 24th bit.

    Raises:
        ValueError: a shape, dtype, device or stride differs from the above.
    """
    _check(combined, state)
    if torch.is_grad_enabled() and (combined.requires_grad or state.requires_grad):
        out, final = _MingruScan.apply(combined, state)
        return out, final
    return _run_forward(combined, state, None)


def mingru_scan_ref(combined: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The definition in plain PyTorch, step by step: float32, or float64 if the inputs are."""
    wide = torch.promote_types(combined.dtype, torch.float32)
    hidden, gate, proj = combined.to(wide).chunk(3, dim=-1)
    z = torch.sigmoid(gate)
    candidate = torch.where(hidden >= 0, hidden + 0.5, torch.sigmoid(hidden))
    h = state.to(wide)[:, 0]
    steps = []
    for t in range(combined.shape[1]):
        h = (1 - z[:, t]) * h + z[:, t] * candidate[:, t]
        steps.append(h)
    # stacked at the end: torch.compile cannot fuse writes into the columns of a tensor
    out = torch.sigmoid(proj) * (torch.stack(steps, dim=1) if steps else hidden)
    return out.to(combined.dtype), h[:, None].to(state.dtype)


def mingru_scan_bytes(combined: Tensor, state: Tensor) -> int:
    """Bytes that forward must move: read combined and state, write out and final."""
    return combined.nbytes * 4 // 3 + 2 * state.nbytes


def mingru_scan_backward_bytes(combined: Tensor, state: Tensor) -> int:
    """Bytes that backward must move: read combined, dout, dfinal, write dcombined and dstate."""
    return combined.nbytes * 7 // 3 + 2 * state.nbytes
