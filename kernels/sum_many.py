"""The sums of thousands of tensors of different sizes, in one launch.

    t_0 ... t_(n-1) of any shapes -> sums (n,) float32

A loop launches n kernels of at least 2 us. Here a program sums a chunk of 16 KiB. A table on the
device, built once, has one 32-byte sector per chunk: the tensor's address, size and number, and the
number of its first chunk. 4096 tensors of 16 KiB on average, 64 MiB, are 6 000 to 8 000 chunks. The
table adds 0.3 % of bytes; the lower bound is 15.6 us at 4.3 TB/s.

A program waits for its table row and then for its chunk. Enough bytes in flight hide both waits: 4
warps with eight 16-byte loads per thread, which the compiler issues four at a time to stay within
32 registers. That is 16 programs and 128 KiB in flight per SM, and 4.3 TB/s at a latency of 3 us
needs 98. Loads of 16 bytes need aligned addresses, so up to 7 elements before the first and after
the last aligned 16 bytes are loaded one by one.

The programs of a tensor with several chunks write their sums to `partials`. The last one to finish
adds them in order and resets the count for the next launch. Which program is last varies, but the
result is always the same, bit for bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsysflow.kernels import nvrtc
from nsysflow.kernels.arguments import (
    FLOATS,
    TRITON_TYPES,
    Backend,
    backend_for,
    require,
    require_current,
)

CHUNK_BYTES: Final = 16_384
"""Bytes that a program sums: eight 16-byte loads per thread of 4 warps."""

_WARPS: Final = 4

_PARTIALS_AT_ONCE: Final = 512
"""Partial sums of a large tensor that are loaded together: 4 per thread."""


@dataclass(frozen=True, kw_only=True)
class SumTable:
    """The addresses of many tensors on the device; made by `sum_table`.

    The table keeps their memory alive: if a tensor is deleted or its `data` replaced, the table
    keeps the old memory. Two streams must not sum the same table at the same time: they would share
    `partials` and `arrived`.
    """

    tensors: tuple[Tensor, ...]
    """Aliases of the tensors, which keep their memory alive."""
    entries: Tensor
    """(chunks, 4) int64: the tensor's address, its size in elements, its number, the number of its
    first chunk."""
    partials: Tensor
    """(chunks,) float32, scratch: chunk sums of tensors with several chunks."""
    arrived: Tensor
    """(tensors,) int32, scratch, 0 between launches: how many chunks of each tensor are summed."""


@triton.jit
def _sum_many(
    entries_ptr, partials_ptr, arrived_ptr, sums_ptr,
    TYPE: tl.constexpr, CHUNK: tl.constexpr, LANES: tl.constexpr, PARTIALS: tl.constexpr,
):  # fmt: skip
    BYTES: tl.constexpr = 16 // LANES
    chunk = tl.program_id(0).to(tl.int64)
    entry = entries_ptr + 4 * chunk
    address = tl.load(entry)
    size = tl.load(entry + 1)
    tensor = tl.load(entry + 2)
    first = tl.load(entry + 3)

    begin = (chunk - first) * CHUNK
    here = tl.minimum(size - begin, CHUNK).to(tl.int32)
    address += begin * BYTES
    # elements before the first 16 aligned bytes, elements in aligned words, and the rest
    before = tl.minimum((-address & 15).to(tl.int32) // BYTES, here)
    inside = tl.multiple_of((here - before) // LANES * LANES, LANES)
    aligned = tl.multiple_of((address + before * BYTES).to(tl.pointer_type(TYPE)), 16)
    edge = tl.arange(0, 2 * LANES)
    edges = tl.load(
        address.to(tl.pointer_type(TYPE)) + tl.where(edge < before, edge, edge + inside),
        mask=edge < here - inside,
        other=0.0,
    )
    at = tl.arange(0, CHUNK)
    body = tl.load(aligned + at, mask=at < inside, other=0.0)
    total = tl.sum(body.to(tl.float32)) + tl.sum(edges.to(tl.float32))

    chunks = tl.cdiv(size, CHUNK)
    if chunks <= 1:
        tl.store(sums_ptr + tensor, total)
    else:
        tl.store(partials_ptr + chunk, total)
        # publishes this program's sum and makes the others' sums visible
        arrived = tl.atomic_add(arrived_ptr + tensor, 1, sem="acq_rel", scope="gpu")
        if arrived == chunks - 1:
            sums = tl.zeros([PARTIALS], tl.float32)
            for start in range(0, chunks, PARTIALS):
                part = start + tl.arange(0, PARTIALS)
                sums += tl.load(partials_ptr + first + part, mask=part < chunks, other=0.0)
            tl.store(sums_ptr + tensor, tl.sum(sums))
            tl.store(arrived_ptr + tensor, 0)


def sum_table(tensors: Sequence[Tensor]) -> SumTable:
    """The table with which `sum_many` sums `tensors`, as often as it is called.

    Building it copies from the host and waits, so a CUDA graph cannot capture it.

    Args:
        tensors: any number of tensors of any shapes, contiguous, on one device: all bf16, all fp16
            or all fp32. Their memory must not be resized (`resize_`) while the table is in use.

    Raises:
        ValueError: a tensor is not contiguous, or differs from the first in dtype or device.
    """
    held = tuple(tensor.detach() for tensor in tensors)
    for number, tensor in enumerate(held):
        require(
            f"tensor {number}",
            tensor,
            tensor.shape,
            dtypes=FLOATS if number == 0 else (held[0].dtype,),
            device=held[0].device,
        )
    device = held[0].device if held else torch.device("cpu")
    chunk = CHUNK_BYTES // held[0].element_size() if held else 1
    sizes = torch.tensor([tensor.numel() for tensor in held], dtype=torch.int64)
    chunks = ((sizes + chunk - 1) // chunk).clamp(
        min=1
    )  # the sum of an empty tensor is written too
    addresses = torch.tensor([tensor.data_ptr() for tensor in held], dtype=torch.int64)
    first = chunks.cumsum(0) - chunks
    rows = torch.stack([addresses, sizes, torch.arange(len(held)), first], dim=1)
    entries = rows.repeat_interleave(chunks, dim=0).to(device)
    return SumTable(
        tensors=held,
        entries=entries,
        partials=torch.empty(len(entries), dtype=torch.float32, device=device),
        arrived=torch.zeros(len(held), dtype=torch.int32, device=device),
    )


def sum_many(table: SumTable, *, backend: Backend = "auto") -> Tensor:
    """The sum of each tensor of a table, added in float32. One launch.

    Args:
        table: from `sum_table`.
        backend: see `backend_for`.

    Returns:
        (tensors,) float32, in the table's order; 0 for an empty tensor.

    Raises:
        ValueError: the backend is unknown or cannot run there, or the table is not on the current
            GPU.
    """
    device = table.entries.device
    require_current("table", device)
    taken = backend_for(backend, device)
    sums = torch.empty(len(table.tensors), dtype=torch.float32, device=device)
    if not table.tensors:
        return sums
    if taken == "cuda":
        _launch_cuda(table, sums)
    else:
        _launch_triton(table, sums)
    return sums


def _launch_triton(table: SumTable, sums: Tensor) -> None:
    dtype = table.tensors[0].dtype
    _sum_many[(len(table.entries),)](
        table.entries, table.partials, table.arrived, sums,
        TYPE=TRITON_TYPES[dtype],
        CHUNK=CHUNK_BYTES // dtype.itemsize,
        LANES=16 // dtype.itemsize,
        PARTIALS=_PARTIALS_AT_ONCE,
        num_warps=_WARPS,
    )  # fmt: skip


def _launch_cuda(table: SumTable, sums: Tensor) -> None:
    nvrtc.launch(
        "sum_many",
        cuda_constants(table.tensors[0].dtype),
        blocks=len(table.entries),
        threads=32 * _WARPS,
        arguments=[table.entries, table.partials, table.arrived, sums],
    )


def cuda_constants(dtype: torch.dtype) -> dict[str, str | int | float]:
    """The constants of `csrc/sum_many.cu` for tensors of `dtype`."""
    return {"ELEMENT": nvrtc.C_TYPES[dtype], "CHUNK_BYTES": CHUNK_BYTES, "THREADS": 32 * _WARPS}


def sum_many_ref(tensors: Sequence[Tensor]) -> Tensor:
    """The definition: a loop of sums in float32, or in float64 if the tensors are."""
    if not tensors:
        return torch.empty(0)
    wide = torch.promote_types(tensors[0].dtype, torch.float32)
    return torch.stack([tensor.sum(dtype=wide) for tensor in tensors])


def sum_many_bytes(table: SumTable) -> int:
    """Bytes that one call must move: read every tensor and the table, write the sums."""
    read = sum(tensor.nbytes for tensor in table.tensors) + table.entries.nbytes
    return read + 4 * len(table.tensors)
