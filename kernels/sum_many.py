"""The sums of thousands of tensors of different sizes, in one launch.

    t_0 ... t_(n-1) of any shapes -> sums (n,) float32

A loop launches n kernels of 2 us or more. Here a program sums a chunk of 16 KiB and a table on the
device says which tensor it is of: 32 bytes a chunk (address and size of the tensor, its number, the
number of its first chunk), one sector, built once. At 4096 tensors and 64 MiB, mean 16 KiB, there
are 6 000 to 8 000 chunks, 0.3 % more bytes; the floor is 15.6 us at 4.3 TB/s.

A program waits for its table row and then for its chunk. What hides both is bytes in flight: 4
warps with eight 16-byte loads a thread, which the compiler issues in two fours to stay within 32
registers, so 16 programs and 128 KiB in flight an SM; 4.3 TB/s over 3 us of waiting needs 98.
16-byte loads need aligned addresses: the up to 7 elements before the first and after the last
aligned 16 bytes are loaded one by one.

The programs of a tensor of several chunks leave their sums in `partials`; the last of them to
arrive adds these in their order and resets the count for the next launch. Who is last changes from
run to run; the result does not, to the bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsysflow.kernels import compiled
from nsysflow.kernels.arguments import (
    FLOATS,
    TRITON_TYPES,
    Backend,
    backend_for,
    require,
    require_current,
)

CHUNK_BYTES: Final = 16_384
"""What a program sums: eight 16-byte loads a thread of 4 warps."""

_WARPS: Final = 4

_PARTIALS_AT_ONCE: Final = 512
"""Of a large tensor: 4 a thread."""


@dataclass(frozen=True, kw_only=True)
class SumTable:
    """Where many tensors lie on the device; made by `sum_table`.

    It keeps their memory alive: a tensor that is deleted, or given other `data`, leaves the table
    with what it held. Two streams must not sum the same table at the same time: they would share
    `partials` and `arrived`.
    """

    tensors: tuple[Tensor, ...]
    """Aliases of the tensors, which hold their memory."""
    entries: Tensor
    """(chunks, 4) int64: the tensor's address, its size in elements, its number, the number of its
    first chunk."""
    partials: Tensor
    """(chunks,) float32, scratch: sums of the chunks of tensors that have several."""
    arrived: Tensor
    """(tensors,) int32, scratch, 0 between launches: chunks of each that are summed."""


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
    # elements before the first 16 aligned bytes, elements in them, and the rest
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
        # release what was stored, acquire what the others stored: one thread does both
        arrived = tl.atomic_add(arrived_ptr + tensor, 1, sem="acq_rel", scope="gpu")
        if arrived == chunks - 1:
            sums = tl.zeros([PARTIALS], tl.float32)
            for start in range(0, chunks, PARTIALS):
                part = start + tl.arange(0, PARTIALS)
                sums += tl.load(partials_ptr + first + part, mask=part < chunks, other=0.0)
            tl.store(sums_ptr + tensor, tl.sum(sums))
            tl.store(arrived_ptr + tensor, 0)


def sum_table(tensors: Sequence[Tensor]) -> SumTable:
    """The table from which `sum_many` sums `tensors`, as often as it is called.

    Building it copies from the host and waits, so it cannot be done while a CUDA graph is captured.

    Args:
        tensors: any number, of any shapes, contiguous, all bf16, all fp16 or all fp32, on one
            device. Their memory must not be resized in place (`resize_`) while the table is in use.

    Raises:
        ValueError: a tensor is not contiguous, or its type or device is not that of the first.
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
    chunks = ((sizes + chunk - 1) // chunk).clamp(min=1)  # an empty tensor's sum is written too
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
        (tensors,) float32, in the table's order; 0 for a tensor without elements.

    Raises:
        ValueError: the backend is unknown or cannot run there, or the table is on another GPU than
            the current one.
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
    compiled.launch(
        "sum_many",
        cuda_constants(table.tensors[0].dtype),
        blocks=len(table.entries),
        threads=32 * _WARPS,
        arguments=[table.entries, table.partials, table.arrived, sums],
    )


def cuda_constants(dtype: torch.dtype) -> dict[str, str | int | float]:
    """What `csrc/sum_many.cu` is compiled with for tensors of `dtype`."""
    return {"ELEMENT": compiled.C_TYPES[dtype], "CHUNK_BYTES": CHUNK_BYTES, "THREADS": 32 * _WARPS}


def sum_many_ref(tensors: Sequence[Tensor]) -> Tensor:
    """A loop of sums in float32, or in float64 where the tensors are: the definition."""
    if not tensors:
        return torch.empty(0)
    wide = torch.promote_types(tensors[0].dtype, torch.float32)
    return torch.stack([tensor.sum(dtype=wide) for tensor in tensors])


def sum_many_bytes(table: SumTable) -> int:
    """Bytes one call must move: read every tensor and the table, write the sums."""
    read = sum(tensor.nbytes for tensor in table.tensors) + table.entries.nbytes
    return read + 4 * len(table.tensors)
