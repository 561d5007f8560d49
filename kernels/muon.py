"""A step of Muon for small matrices: clip, momentum, orthogonalise, update. Two launches.

    scale = min(1, max_norm / (norm + 1e-6)), norm over all gradients g;  g <- scale g
    m <- mu m + g;  u = g + mu m
    X = bf16(u), transposed if rows > cols;  X <- X / max(norm_F(X), 1e-7)
    five times:  G = X Xt,  G <- b G + c G G,  X <- a X + G X     (a, b, c: `TRIPLES`)
    u = X sqrt(max(1, rows / cols)), transposed back;  W <- W (1 - lr wd) - lr u

    W, m (rows, cols) float32; g (rows, cols) float32, bf16 or fp16; optional bf16 copy of W

(Jordan et al. 2024, kellerjordan.github.io/posts/muon, with five triples instead of one.)

X, G and b G + c G G are bf16, each rounded once from a float32 sum. Everything else is float32.

A matrix of 384 x 128 takes 5 x (2 x 2 x 128 x 128 x 384 + 2 x 128^3) = 147 MFLOP, 25 us at the 6
TFLOP/s that large products reach on one SM. On GPUs with clusters eight SMs share it
(`csrc/muon.cu`): each has 48 columns of X. In each step they exchange, through shared memory, their
parts of G (36 KiB from each SM, only five of eight squares in a row as G is symmetric) and its sums
and factors (18 KiB each). On an H200 a step takes 4.3 us: 1.8 the products, 0.3 the sums, 2.2 the
exchange, of which 1.4 are parts of G on their way (2026-11-28, clock stamps in the kernel). Loading
and dividing before the steps takes 4.4 us, the weights after them 1.6.

Elsewhere, and where too many matrices wait for clusters, one program steps each matrix
(`muon_kernels.py`).

Matrices of 128 x 96, 384 x 128 and 5 x 128 with float32 gradients and no copies are 1.5 MB, all in
L2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
import triton.language as tl
from torch import Tensor

from nsysflow.kernels import nvrtc
from nsysflow.kernels.arguments import (
    FLOATS,
    TRITON_TYPES,
    Backend,
    backend_for,
    cdiv,
    next_power_of_2,
    require,
    require_current,
)
from nsysflow.kernels.muon_kernels import COLS, PARTS, TRIPLES, muon_squares, muon_step

SHORT_MAX: Final = 128
"""Limit of the shorter side: G of 128 x 128 in float32 is a quarter of an SM's registers."""

LONG_MAX: Final = 65_536
"""Limit of the longer side: offsets stay below 2**31. It takes 85 times as long as 384."""


BLOCKS: Final = 8
"""Blocks of a cluster, the most that every GPU with clusters allows."""

SHARED_MIN: Final = 16_384
"""Elements of a matrix, its shorter side padded, from which clusters are faster. On an H200, three
of 64 x 256 took 29.6 us by clusters and 30.9 by programs, three of 64 x 64 took 26.8 and 17.5."""


@dataclass(frozen=True, kw_only=True)
class MuonTable:
    """The addresses of Muon's matrices on the device; made by `muon_table`.

    The table keeps their memory alive: if a parameter's `data` is replaced, the table keeps the old
    memory. Two streams must not step the same table at the same time.
    """

    weights: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]
    momenta: tuple[Tensor, ...]
    """Float32, initially zero. To resume a training, copy into them."""
    working: tuple[Tensor, ...]
    """bf16 copies of the weights, which a step also writes; none, or one per weight."""
    entries: Tensor
    """(matrices, 7) int64: addresses of weight, gradient, momentum and working copy (or 0), rows,
    columns, number of the first tile. Empty matrices are left out."""
    tiles: Tensor
    """(tiles, rows, 128) bf16, scratch: tiles of X, its short side padded to `rows`."""
    squares: Tensor
    """(16 matrices,) float32, scratch: sums of squares of parts of the gradients."""
    aligned: bool
    """Whether addresses and rows are multiples of 16 bytes, so that loads can be 16 bytes."""
    width: int
    """Columns of X that a block of a cluster keeps; 0 if clusters cannot step these matrices."""
    faster_by_clusters: bool
    """Whether all clusters run at once, and a matrix is large enough to be shared."""


def muon_table(
    weights: Sequence[Tensor], gradients: Sequence[Tensor], *, working: Sequence[Tensor] = ()
) -> MuonTable:
    """The table with which `muon` steps these matrices. Momenta are zero.

    Building it copies from the host and waits, so a CUDA graph cannot capture it.

    Args:
        weights: (rows, cols) each, contiguous float32, on one device: the masters. The shorter
            side is at most `SHORT_MAX`, the longer one at most `LONG_MAX`.
        gradients: buffers like the weights, which contain the gradients whenever `muon` is called:
            all float32, all bf16 or all fp16. Zero them between steps, never replace them.
        working: bf16 copies of the weights, kept up to date by `muon`; none by default.

    Raises:
        ValueError: a shape, dtype, device or stride differs from the above, or the lists differ in
            length.
    """
    for name, given in (("gradients", gradients), ("working", working or weights)):
        if len(given) != len(weights):
            raise ValueError(
                f"{name} must be {len(weights)}, as many as weights, but are {len(given)}"
            )
    for number, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
        like = weights[0].device
        require(f"weight {number}", weight, (None, None), dtypes=(torch.float32,), device=like)
        if min(weight.shape) > SHORT_MAX or max(weight.shape) > LONG_MAX:
            raise ValueError(
                f"weight {number} must be at most {SHORT_MAX} by {LONG_MAX} or the reverse, but is"
                f" {tuple(weight.shape)}"
            )
        dtypes = FLOATS if number == 0 else (gradients[0].dtype,)
        require(f"gradient {number}", gradient, weight.shape, dtypes=dtypes, device=like)
        if working:
            copy = working[number]
            require(f"copy {number}", copy, weight.shape, dtypes=(torch.bfloat16,), device=like)
    return _table(
        tuple(weight.detach() for weight in weights),
        tuple(gradient.detach() for gradient in gradients),
        tuple(copy.detach() for copy in working),
    )


def _table(
    weights: tuple[Tensor, ...], gradients: tuple[Tensor, ...], working: tuple[Tensor, ...]
) -> MuonTable:
    """The table of matrices that have been checked."""
    device = weights[0].device if weights else torch.device("cpu")
    momenta = tuple(torch.zeros_like(weight) for weight in weights)
    entries = []
    tiles = 0
    for number, weight in enumerate(weights):
        if weight.numel() == 0:
            continue
        held = (weight, gradients[number], momenta[number], *working[number : number + 1])
        addresses = [tensor.data_ptr() for tensor in held] + [0] * (4 - len(held))
        entries.append([*addresses, *weight.shape, tiles])
        tiles += cdiv(max(weight.shape), COLS)
    short = max((min(weight.shape) for weight in weights), default=1)
    rows = max(16, next_power_of_2(short))  # 16: the smallest side of a product
    # 8 columns are 16 bytes of the smallest type
    aligned = all(
        cols % 8 == 0 and all(address % 16 == 0 for address in addresses)
        for *addresses, _, cols, _ in entries
    )
    long = max((max(weight.shape) for weight in weights), default=1)
    width = 16 * cdiv(long, 16 * BLOCKS)
    at_once = _clusters_at_once(device, width) if aligned else 0
    return MuonTable(
        weights=weights,
        gradients=gradients,
        momenta=momenta,
        working=working,
        entries=torch.tensor(entries, dtype=torch.int64, device=device).view(-1, 7),
        tiles=torch.empty(tiles, rows, COLS, dtype=torch.bfloat16, device=device),
        squares=torch.empty(len(entries) * PARTS, dtype=torch.float32, device=device),
        aligned=aligned,
        width=width if at_once else 0,
        faster_by_clusters=len(entries) <= at_once and rows * long >= SHARED_MIN,
    )


def _clusters_at_once(device: torch.device, width: int) -> int:
    """How many clusters whose blocks keep `width` columns a GPU runs at a time; 0 if it cannot."""
    if device.type != "cuda" or torch.version.hip:
        return 0
    properties = torch.cuda.get_device_properties(device)
    shared_bytes = getattr(properties, "shared_memory_per_block_optin", 0)
    if properties.major < 9 or _shared_bytes(width) > shared_bytes:
        return 0
    # some SMs remain of each group: on an H200, 14 matrices took 36 us and 16 took 64
    return properties.multi_processor_count // (BLOCKS + 1)


def muon(
    table: MuonTable,
    lr: Tensor,
    *,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    max_norm: float = 0.5,
    backend: Backend = "auto",
) -> None:
    """Step momenta, weights and working copies in place. Two launches.

    A NaN in a gradient makes the norm and therefore all weights NaN. An infinity makes the scale 0
    and its own matrix NaN. The gradients do not change.

    Args:
        table: from `muon_table`.
        lr: learning rate, one float32 element on the table's device, so that a captured graph can
            follow a schedule.
        momentum: mu.
        weight_decay: wd.
        max_norm: the norm of all gradients together is clipped to this.
        backend: "cuda" steps each matrix by a cluster of blocks, if the GPU has those (compute
            capability 9.0 or later), rows are multiples of 16 bytes, and X fits into their shared
            memory: 1536 columns on an H100. "auto" takes it where it is faster.

    Raises:
        ValueError: `lr` is not such a tensor, the table is not on the current GPU, or the backend
            is unknown or cannot run there.
    """
    device = table.entries.device
    require_current("table", device)
    require("lr", lr, (1,) if lr.dim() else (), dtypes=(torch.float32,), device=device)
    by_clusters = _by_clusters(table, backend)
    matrices = len(table.entries)
    if matrices == 0:
        return
    kind = TRITON_TYPES[table.gradients[0].dtype]
    muon_squares[(matrices, PARTS)](
        table.entries, table.squares, TYPE=kind, BLOCK=4096, ALIGNED=table.aligned, num_warps=4
    )
    if by_clusters:
        _step_by_clusters(table, lr, momentum, weight_decay, max_norm)
    else:
        _step_by_programs(table, lr, momentum, weight_decay, max_norm)
    torch.autograd.graph.increment_version(table.weights + table.working)


def _by_clusters(table: MuonTable, backend: Backend) -> bool:
    """Whether clusters step the table.

    Raises:
        ValueError: they should and cannot, or there is no such backend.
    """
    device = table.entries.device
    if backend_for(backend, device) == "cuda" and not table.width:
        raise ValueError(
            "backend cuda needs a GPU of compute capability 9.0 or later, rows of a multiple of 16"
            " bytes and matrices that fit into its shared memory: use backend triton, or auto"
        )
    if backend != "auto":
        return backend == "cuda"
    return table.faster_by_clusters and nvrtc.can_compile()


def _step_by_clusters(
    table: MuonTable, lr: Tensor, momentum: float, weight_decay: float, max_norm: float
) -> None:
    shared_bytes = _shared_bytes(table.width)
    rates = (nvrtc.float_bits(rate) for rate in (momentum, weight_decay, max_norm))
    nvrtc.launch(
        "muon",
        {
            "ELEMENT": nvrtc.C_TYPES[table.gradients[0].dtype],
            "WIDTH": table.width,
            "COPIES": int(len(table.working) > 0),
            "TRIPLES": _TRIPLES_IN_C,
            "SHARED_BYTES": shared_bytes,
        },
        blocks=BLOCKS * len(table.entries),
        threads=256,
        shared_bytes=shared_bytes,
        arguments=(table.entries, table.squares, lr, len(table.squares), *rates),
    )


_TRIPLES_IN_C: Final = (
    f"{{{','.join('{' + ','.join(f'{factor}f' for factor in row) + '}' for row in TRIPLES)}}}"
)


def _shared_bytes(width: int) -> int:
    """Shared memory of a block: parts of G out and in, G, b G + c G G, X twice, the rest."""
    return 2 * 40_960 + 2 * 20_480 + 2 * 2 * SHORT_MAX * (width + 8) + 128


def _step_by_programs(
    table: MuonTable, lr: Tensor, momentum: float, weight_decay: float, max_norm: float
) -> None:
    muon_step[(len(table.entries),)](
        table.entries, table.squares, table.tiles, lr, momentum, weight_decay, max_norm,
        ROWS=table.tiles.shape[1],
        TYPE=TRITON_TYPES[table.gradients[0].dtype],
        # the interpreter multiplies the bits of bf16 as integers
        OPERAND=tl.bfloat16 if lr.device.type == "cuda" else tl.float32,
        WORKING=len(table.working) > 0,
        ALIGNED=table.aligned,
        num_warps=8,
    )  # fmt: skip


def muon_ref(
    weights: Sequence[Tensor],
    gradients: Sequence[Tensor],
    momenta: Sequence[Tensor],
    lr: float,
    *,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    max_norm: float | None = 0.5,
) -> tuple[list[Tensor], list[Tensor]]:
    """The definition: new weights and new momenta; nothing changes in place.

    Float32 weights are stepped in float32 with the definition's roundings to bf16, float64 weights
    in float64 without any rounding. A `max_norm` of None does not clip.
    """
    wide = [gradient.to(weight.dtype) for gradient, weight in zip(gradients, weights, strict=True)]
    if max_norm is not None:
        wide = clipped_ref(wide, max_norm)
    new_weights, new_momenta = [], []
    for weight, gradient, old in zip(weights, wide, momenta, strict=True):
        m = momentum * old + gradient
        u = _orthogonalised_ref(gradient + momentum * m)
        new_weights.append(weight * (1 - lr * weight_decay) - lr * u)
        new_momenta.append(m)
    return new_weights, new_momenta


def clipped_ref(gradients: Sequence[Tensor], max_norm: float) -> list[Tensor]:
    """The gradients, scaled so that their common norm is at most about `max_norm`."""
    norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
    scale = (max_norm / (norm + 1e-6)).clamp(max=1)
    return [scale * gradient for gradient in gradients]


def _orthogonalised_ref(u: Tensor) -> Tensor:
    """One matrix after the five steps, times the factor for its shape."""

    def rounded(x: Tensor) -> Tensor:
        return x if x.dtype == torch.float64 else x.bfloat16().float()

    rows, cols = u.shape
    x = rounded(u.T if rows > cols else u)
    x = rounded(x / x.square().sum().sqrt().clamp(min=1e-7))
    for a, b, c in TRIPLES:
        g = rounded(x @ x.T)
        x = rounded(a * x + rounded(b * g + c * (g @ g)) @ x)
    factor = math.sqrt(max(1, rows / cols))
    return factor * (x.T if rows > cols else x)


def muon_flops(rows: int, cols: int) -> int:
    """Floating-point operations of one matrix's products: X Xt, G G and G X in each step."""
    short, long = min(rows, cols), max(rows, cols)
    return len(TRIPLES) * (2 * 2 * short * short * long + 2 * short**3)


def muon_bytes(table: MuonTable) -> int:
    """Bytes that a step must move: gradients twice, momenta and weights in and out, copies out."""
    twice = (*table.gradients, *table.momenta, *table.weights)
    return sum(2 * tensor.nbytes for tensor in twice) + sum(copy.nbytes for copy in table.working)
