"""The Triton kernels of `advantage`; the equation and the plan are in its docstring."""

import triton
import triton.language as tl

from nsysflow.kernels.arguments import follow


@triton.jit
def _from_right(x, hop: tl.constexpr, beyond, ROWS: tl.constexpr, LANES: tl.constexpr):
    """x of the lane `hop` places to the right; `beyond` (ROWS, 1) past the last lane."""
    lane = tl.arange(0, LANES)[None, :] + tl.zeros([ROWS, 1], tl.int32)
    right = tl.gather(x, tl.minimum(lane + hop, LANES - 1), 1)
    return tl.where(lane + hop < LANES, right, beyond)


@triton.jit
def _first(x, SPAN: tl.constexpr):
    """The first column of x, (ROWS, 1)."""
    first = (tl.arange(0, SPAN) == 0)[None, :]
    return tl.sum(tl.where(first, x, 0.0), axis=1, keep_dims=True)


@triton.jit
def _next(x, beyond, ROWS: tl.constexpr, LANES: tl.constexpr, CHUNK: tl.constexpr):
    """x of the next step, (ROWS, LANES * CHUNK) like x."""
    if CHUNK == 1:
        return _from_right(x, 1, beyond, ROWS, LANES)
    else:
        even, odd = tl.split(tl.reshape(x, [ROWS, LANES * CHUNK // 2, 2]))
        after_odd = _next(even, beyond, ROWS, LANES, CHUNK // 2)
        return tl.reshape(tl.join(odd, after_odd), [ROWS, LANES * CHUNK])


@triton.jit
def _solve(delta, keep, beyond, ROWS: tl.constexpr, LANES: tl.constexpr, CHUNK: tl.constexpr):
    """A from A[t] = delta[t] + keep[t] A[t+1], (ROWS, LANES * CHUNK), and its first column.

    A is `beyond` after the last step. Pairs of steps are merged until each lane has one step.
    """
    if CHUNK == 1:
        for power in tl.static_range(5):  # 32 lanes
            if 1 << power < LANES:
                # past the last lane: the identity map
                delta += keep * _from_right(delta, 1 << power, 0.0, ROWS, LANES)
                keep *= _from_right(keep, 1 << power, 1.0, ROWS, LANES)
        a = delta + keep * beyond
        return a, _first(a, LANES)
    else:
        even_delta, odd_delta = tl.split(tl.reshape(delta, [ROWS, LANES * CHUNK // 2, 2]))
        even_keep, odd_keep = tl.split(tl.reshape(keep, [ROWS, LANES * CHUNK // 2, 2]))
        even, first = _solve(
            even_delta + even_keep * odd_delta,
            even_keep * odd_keep,
            beyond,
            ROWS,
            LANES,
            CHUNK // 2,
        )
        odd = odd_delta + odd_keep * _next(even, beyond, ROWS, LANES, CHUNK // 2)
        return tl.reshape(tl.join(even, odd), [ROWS, LANES * CHUNK]), first


@triton.jit
def _times(x, y):
    return x * y


@triton.jit
def _walk(
    values_ptr,
    rewards_ptr,
    done_ptr,
    ratio_ptr,
    bootstrap_ptr,
    out_ptr,
    row,
    live,
    begin,
    beyond_a,
    gamma,
    gamma_lambda,
    rho_clip,
    c_clip,
    STEPS: tl.constexpr,
    TILES: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Solve TILES tiles of each row from step `begin`, from right to left; A is `beyond_a` after.

    Stores A if there is an `out_ptr`.

    Returns:
        A of step `begin`, and the product of all factors of A[t+1], (ROWS, 1).
    """
    SPAN: tl.constexpr = LANES * CHUNK
    end = row * STEPS + begin + TILES * SPAN
    follows = live & (begin + TILES * SPAN < STEPS)
    beyond_value = tl.load(values_ptr + end, mask=follows, other=0).to(tl.float32)
    beyond_reward = tl.load(rewards_ptr + end, mask=follows, other=0).to(tl.float32)
    beyond_done = tl.load(done_ptr + end, mask=follows, other=0).to(tl.float32)
    beyond_bootstrap = beyond_done
    if bootstrap_ptr is not None:
        beyond_bootstrap = tl.load(bootstrap_ptr + end, mask=follows, other=0).to(tl.float32)
    kept = tl.full([ROWS, SPAN], 1.0, tl.float32)
    for tile in range(TILES):
        step = begin + ((TILES - 1 - tile) * SPAN + tl.arange(0, SPAN))[None, :]
        at = row * STEPS + step
        mask = live & (step < STEPS)
        value = tl.load(values_ptr + at, mask=mask, other=0).to(tl.float32)
        reward = tl.load(rewards_ptr + at, mask=mask, other=0).to(tl.float32)
        done = tl.load(done_ptr + at, mask=mask, other=0).to(tl.float32)
        ratio = tl.load(ratio_ptr + at, mask=mask, other=0).to(tl.float32)

        next_value = _next(value, beyond_value, ROWS, LANES, CHUNK)
        next_reward = _next(reward, beyond_reward, ROWS, LANES, CHUNK)
        next_done = _next(done, beyond_done, ROWS, LANES, CHUNK)
        n = 1.0 - next_done
        future = gamma * n * next_value
        if bootstrap_ptr is not None:
            bootstrap = tl.load(bootstrap_ptr + at, mask=mask, other=0).to(tl.float32)
            next_bootstrap = _next(bootstrap, beyond_bootstrap, ROWS, LANES, CHUNK)
            future += gamma * next_done * next_bootstrap
            if TILES > 1:
                beyond_bootstrap = _first(bootstrap, SPAN)
        # where, not minimum: a NaN ratio must stay one
        rho = tl.where(ratio > rho_clip, rho_clip, ratio)
        c = tl.where(ratio > c_clip, c_clip, ratio)
        inside = step < STEPS - 1  # A is 0 from the row's last step on
        delta = tl.where(inside, rho * (next_reward + future - value), 0.0)
        keep = tl.where(inside, gamma_lambda * n * c, 0.0)
        a, beyond_a = _solve(delta, keep, beyond_a, ROWS, LANES, CHUNK)
        kept *= keep
        if out_ptr is not None:
            tl.store(out_ptr + at, a, mask=mask)

        if TILES > 1:
            beyond_value = _first(value, SPAN)
            beyond_reward = _first(reward, SPAN)
            beyond_done = _first(done, SPAN)
    return beyond_a, tl.reduce(kept, 1, _times, keep_dims=True)


@triton.jit
def solve_rows(
    values_ptr,
    rewards_ptr,
    done_ptr,
    ratio_ptr,
    bootstrap_ptr,
    out_ptr,
    rows,
    gamma,
    gamma_lambda,
    rho_clip,
    c_clip,
    STEPS: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Whole rows, ROWS per program."""
    # int64: rows * STEPS passes 2**31 at 8M rows of 256
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    beyond_a = tl.zeros([ROWS, 1], tl.float32)
    _walk(
        values_ptr, rewards_ptr, done_ptr, ratio_ptr, bootstrap_ptr, out_ptr,
        row, row < rows, 0, beyond_a, gamma, gamma_lambda, rho_clip, c_clip,
        STEPS, (STEPS + LANES * CHUNK - 1) // (LANES * CHUNK), ROWS, LANES, CHUNK,
    )  # fmt: skip


@triton.jit
def _piece(rows, PIECES: tl.constexpr, ROWS: tl.constexpr):
    """The rows of a program's pieces, their numbers in the row, and which exist, (ROWS, 1)."""
    number = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    return (number // PIECES).to(tl.int64), number % PIECES, number < rows * PIECES


@triton.jit
def compose_pieces(
    values_ptr,
    rewards_ptr,
    done_ptr,
    ratio_ptr,
    bootstrap_ptr,
    maps_ptr,
    rows,
    gamma,
    gamma_lambda,
    rho_clip,
    c_clip,
    STEPS: tl.constexpr,
    PIECES: tl.constexpr,
    TILES: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """The map of each piece, from A after it to A of its first step: maps (2, rows, PIECES)."""
    row, piece, live = _piece(rows, PIECES, ROWS)
    nothing = tl.zeros([ROWS, 1], tl.float32)
    delta, keep = _walk(
        values_ptr, rewards_ptr, done_ptr, ratio_ptr, bootstrap_ptr, None, row, live,
        piece * (TILES * LANES * CHUNK), nothing, gamma, gamma_lambda, rho_clip, c_clip,
        STEPS, TILES, ROWS, LANES, CHUNK,
    )  # fmt: skip
    tl.store(maps_ptr + row * PIECES + piece, delta, mask=live)
    tl.store(maps_ptr + (rows + row) * PIECES + piece, keep, mask=live)


@triton.jit
def solve_pieces(
    values_ptr,
    rewards_ptr,
    done_ptr,
    ratio_ptr,
    bootstrap_ptr,
    out_ptr,
    maps_ptr,
    rows,
    gamma,
    gamma_lambda,
    rho_clip,
    c_clip,
    STEPS: tl.constexpr,
    PIECES: tl.constexpr,
    TILES: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    CHUNK: tl.constexpr,
    MAPS: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """A of each piece. A after it comes from the maps of all pieces right of it, MAPS per lane."""
    follow(OVERLAP)
    row, piece, live = _piece(rows, PIECES, ROWS)
    READ: tl.constexpr = LANES * MAPS
    ROUNDS: tl.constexpr = (PIECES + READ - 1) // READ
    beyond_a = tl.zeros([ROWS, 1], tl.float32)
    for round in range(ROUNDS):
        other = ((ROUNDS - 1 - round) * READ + tl.arange(0, READ))[None, :]
        right = live & (other > piece) & (other < PIECES)
        # elsewhere: the identity map
        delta = tl.load(maps_ptr + row * PIECES + other, mask=right, other=0.0)
        keep = tl.load(maps_ptr + (rows + row) * PIECES + other, mask=right, other=1.0)
        _, beyond_a = _solve(delta, keep, beyond_a, ROWS, LANES, MAPS)
    _walk(
        values_ptr, rewards_ptr, done_ptr, ratio_ptr, bootstrap_ptr, out_ptr, row, live,
        piece * (TILES * LANES * CHUNK), beyond_a, gamma, gamma_lambda, rho_clip, c_clip,
        STEPS, TILES, ROWS, LANES, CHUNK,
    )  # fmt: skip
