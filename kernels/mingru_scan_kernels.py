"""The two Triton kernels of `mingru_scan`; the equations and the plan are in its docstring."""

import triton
import triton.language as tl

from nsysflow.kernels.arguments import follow


@triton.jit
def _rows(
    at, step: tl.constexpr, left, STEPS: tl.constexpr, WHOLE: tl.constexpr,
    LAST: tl.constexpr = False,
):  # fmt: skip
    """The rows of a chunk, `step` apart, for channels with rows left; 0 beyond the last step.

    What nothing reads after this, the LAST time, leaves L2 first.
    """
    policy: tl.constexpr = "evict_first" if LAST else ""
    rows: tl.tuple = ()
    for i in tl.static_range(STEPS):
        if WHOLE:
            row = tl.load(at + i * step, mask=left > 0, eviction_policy=policy)
        else:
            row = tl.load(at + i * step, mask=left > i, other=0.0, eviction_policy=policy)
        rows += (row,)
    return rows


@triton.jit
def _grown(x):
    """exp(-x), limited to 2^125 so that its products stay finite. A NaN stays NaN."""
    return tl.exp2(tl.minimum(-1.4426950408889634 * x, 125.0, propagate_nan=tl.PropagateNan.ALL))


@triton.jit
def _sigmoid(x):
    """S(x) and 1 - S(x). Subtracting S(x) from 1 would leave no digits at x = 16."""
    grown = _grown(x)
    root = tl.rsqrt(1 + grown)
    opened = root * root
    return opened, opened * grown


@triton.jit
def _gates(hidden, gate):
    """z, 1 - z and c. They all enter the same h, so a NaN in one may make the others NaN."""
    grown = _grown(gate)
    # 0 where S(hidden) is not used, so that z is 1 for a fully open gate, whatever c is
    raised = tl.where(hidden >= 0, 0.0, tl.exp2(1.4426950408889634 * hidden))
    root = tl.rsqrt((1 + grown) * (1 + raised))
    both = root * root
    z = both * (1 + raised)
    candidate = tl.where(hidden >= 0, hidden + 0.5, both * (1 + grown) * raised)
    return z, z * grown, candidate


@triton.jit(do_not_specialize=["T"])
def mingru_scan_forward(
    combined_ptr, state_ptr, out_ptr, final_ptr, saved_ptr, T,
    H: tl.constexpr, STEPS: tl.constexpr, WHOLE: tl.constexpr, SAVE: tl.constexpr,
    BLOCK: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """BLOCK recurrences, from the first step; SAVE also stores h before each chunk."""
    follow(OVERLAP)
    across: tl.constexpr = (H + BLOCK - 1) // BLOCK
    batch = (tl.program_id(0) // across).to(tl.int64)
    channel = tl.program_id(0) % across * BLOCK + tl.arange(0, BLOCK)
    live = channel < H
    combined_ptr += batch * T * (3 * H) + channel
    out_ptr += batch * T * H + channel
    state_at = batch * H + channel
    h = tl.load(state_ptr + state_at, mask=live).to(tl.float32)
    if SAVE:
        saved_ptr += batch * tl.cdiv(T, STEPS) * H + channel
    left = tl.where(live, T, 0)
    hidden = _rows(combined_ptr, 3 * H, left, STEPS, WHOLE)
    gate = _rows(combined_ptr + H, 3 * H, left, STEPS, WHOLE)
    proj = _rows(combined_ptr + 2 * H, 3 * H, left, STEPS, WHOLE)
    for start in range(0, T, STEPS):
        left = tl.where(live, T - start, 0)
        combined_ptr += STEPS * 3 * H
        next_hidden = _rows(combined_ptr, 3 * H, left - STEPS, STEPS, WHOLE)
        next_gate = _rows(combined_ptr + H, 3 * H, left - STEPS, STEPS, WHOLE)
        next_proj = _rows(combined_ptr + 2 * H, 3 * H, left - STEPS, STEPS, WHOLE)
        if SAVE:
            tl.store(saved_ptr, h, mask=live)
            saved_ptr += H
        for i in tl.static_range(STEPS):
            z, _, candidate = _gates(hidden[i].to(tl.float32), gate[i].to(tl.float32))
            inside = live
            if not WHOLE:
                inside = left > i
                z = tl.where(inside, z, 0.0)
            h = (1 - z) * h + z * candidate
            opened, _ = _sigmoid(proj[i].to(tl.float32))
            tl.store(out_ptr + i * H, (opened * h).to(out_ptr.dtype.element_ty), mask=inside)
        out_ptr += STEPS * H
        hidden = next_hidden
        gate = next_gate
        proj = next_proj
    tl.store(final_ptr + state_at, h.to(final_ptr.dtype.element_ty), mask=live)


@triton.jit
def _slopes(at, left, STEPS: tl.constexpr, OUTPUTS: tl.constexpr, WHOLE: tl.constexpr):
    """The OUTPUTS numbers of each row of a chunk; 0 beyond the last step."""
    slopes: tl.tuple = ()
    for i in tl.static_range(STEPS):
        for output in tl.static_range(OUTPUTS):
            if WHOLE:
                slope = tl.load(at + i * OUTPUTS + output)
            else:
                slope = tl.load(at + i * OUTPUTS + output, mask=left > i, other=0.0)
            slopes += (slope.to(tl.float32),)
    return slopes


@triton.jit
def _product(slopes, i: tl.constexpr, weight, OUTPUTS: tl.constexpr):
    """Row i of the gradient of out: that of the layer's outputs times its weight."""
    dout = slopes[i * OUTPUTS] * weight[0]
    for output in tl.static_range(1, OUTPUTS):
        dout += slopes[i * OUTPUTS + output] * weight[output]
    return dout


@triton.jit
def _added(dweight, slopes, i: tl.constexpr, out, OUTPUTS: tl.constexpr):
    """`dweight` with what row i adds to it."""
    more: tl.tuple = ()
    for output in tl.static_range(OUTPUTS):
        more += (dweight[output] + slopes[i * OUTPUTS + output] * out,)
    return more


@triton.jit(do_not_specialize=["T"])
def mingru_scan_backward(
    combined_ptr, saved_ptr, dout_ptr, dfinal_ptr, dcombined_ptr, dstate_ptr, weight_ptr, parts_ptr,
    T, H: tl.constexpr, OUTPUTS: tl.constexpr, STEPS: tl.constexpr, WHOLE: tl.constexpr,
    BLOCK: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """Gradients of BLOCK recurrences, from the last step; h is recomputed chunk by chunk.

    With OUTPUTS, `dout_ptr` has the gradient (B, T, OUTPUTS) of a linear layer of out instead. dout
    is that times the layer's weight, and parts (B, OUTPUTS, H) are what each batch adds to the
    weight's gradient.
    """
    follow(OVERLAP)
    across: tl.constexpr = (H + BLOCK - 1) // BLOCK
    batch = (tl.program_id(0) // across).to(tl.int64)
    channel = tl.program_id(0) % across * BLOCK + tl.arange(0, BLOCK)
    live = channel < H
    chunks = tl.cdiv(T, STEPS)
    start = (chunks - 1) * STEPS
    at = (batch * T + start) * (3 * H) + channel
    combined_ptr += at
    dcombined_ptr += at
    if OUTPUTS > 0:
        dout_ptr += (batch * T + start) * OUTPUTS
    else:
        dout_ptr += (batch * T + start) * H + channel
    weight: tl.tuple = ()
    dweight: tl.tuple = ()
    for output in tl.static_range(OUTPUTS):
        weight += (tl.load(weight_ptr + output * H + channel, mask=live, other=0.0).to(tl.float32),)
        dweight += (tl.zeros((BLOCK,), tl.float32),)
    saved_ptr += (batch * chunks + chunks - 1) * H + channel
    state_at = batch * H + channel
    dh = tl.zeros((BLOCK,), tl.float32)
    if dfinal_ptr is not None:
        dh = tl.load(dfinal_ptr + state_at, mask=live).to(tl.float32)
    left = tl.where(live, T - start, 0)
    hidden = _rows(combined_ptr, 3 * H, left, STEPS, WHOLE, LAST=True)
    gate = _rows(combined_ptr + H, 3 * H, left, STEPS, WHOLE, LAST=True)
    proj = _rows(combined_ptr + 2 * H, 3 * H, left, STEPS, WHOLE, LAST=True)
    dout: tl.tuple = ()
    if OUTPUTS == 0:
        dout = _rows(dout_ptr, H, left, STEPS, WHOLE, LAST=True)
    before = tl.load(saved_ptr, mask=live)
    for _ in range(chunks):
        left = tl.where(live, T - start, 0)
        start -= STEPS
        combined_ptr -= STEPS * 3 * H
        saved_ptr -= H
        more = tl.where(live, start + STEPS, 0)  # a chunk, or nothing before the first one
        next_hidden = _rows(combined_ptr, 3 * H, more, STEPS, True, LAST=True)
        next_gate = _rows(combined_ptr + H, 3 * H, more, STEPS, True, LAST=True)
        next_proj = _rows(combined_ptr + 2 * H, 3 * H, more, STEPS, True, LAST=True)
        next_dout: tl.tuple = ()
        slopes: tl.tuple = ()
        if OUTPUTS > 0:
            slopes = _slopes(dout_ptr, T - start - STEPS, STEPS, OUTPUTS, WHOLE)
            dout_ptr -= STEPS * OUTPUTS
        else:
            dout_ptr -= STEPS * H
            next_dout = _rows(dout_ptr, H, more, STEPS, True, LAST=True)
        next_before = tl.load(saved_ptr, mask=more > 0)
        zs: tl.tuple = ()
        shuts: tl.tuple = ()
        candidates: tl.tuple = ()
        hs: tl.tuple = (before,)
        for i in tl.static_range(STEPS):
            z, shut, candidate = _gates(hidden[i].to(tl.float32), gate[i].to(tl.float32))
            if not WHOLE:
                z = tl.where(left > i, z, 0.0)
            zs += (z,)
            shuts += (shut,)
            candidates += (candidate,)
            hs += ((1 - z) * hs[i] + z * candidate,)
        for i in tl.static_range(STEPS - 1, -1, -1):
            opened, closed = _sigmoid(proj[i].to(tl.float32))
            if OUTPUTS > 0:
                through = opened * _product(slopes, i, weight, OUTPUTS)
                dweight = _added(dweight, slopes, i, opened * hs[i + 1], OUTPUTS)
            else:
                through = dout[i].to(tl.float32) * opened
            d = dh + through
            dz = d * zs[i]
            below = candidates[i] * (1 - candidates[i])
            slope = tl.where(hidden[i].to(tl.float32) >= 0, 1.0, below)
            dgate = dz * (candidates[i] - hs[i]) * shuts[i]
            inside = live
            if not WHOLE:
                inside = left > i
            to = dcombined_ptr + i * 3 * H
            dtype = dcombined_ptr.dtype.element_ty
            tl.store(to, (dz * slope).to(dtype), mask=inside)
            tl.store(to + H, dgate.to(dtype), mask=inside)
            tl.store(to + 2 * H, (through * hs[i + 1] * closed).to(dtype), mask=inside)
            dh = d - dz
        dcombined_ptr -= STEPS * 3 * H
        hidden = next_hidden
        gate = next_gate
        proj = next_proj
        dout = next_dout
        before = next_before
    tl.store(dstate_ptr + state_at, dh.to(dstate_ptr.dtype.element_ty), mask=live)
    for output in tl.static_range(OUTPUTS):
        part = parts_ptr + (batch * OUTPUTS + output) * H + channel
        tl.store(part, dweight[output], mask=live)
