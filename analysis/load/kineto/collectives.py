"""Collectives of a torch.profiler trace (`record_param_comms`), as nsys reports have NCCL's ranges
(spec §9.1a)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.kineto.document import (
    CollectiveArgs,
    Event,
    collective_args_of,
    frame_of,
    int_of,
    span_ns,
)
from nsysflow.analysis.load.kineto.running import ThreadKeys, on_thread
from nsysflow.analysis.load.marks import NCCL

RECORD: Final = "record_param_comms"
"""The operator in which PyTorch calls NCCL."""


@dataclass(frozen=True)
class _Operation:
    """NCCL's name of an operation, and which of the counts is the message that NCCL would state.

    Attributes:
        name: as NCCL's ranges have it.
        received: whether the message is what this rank receives, rather than what it sends.
        divided: whether what is sent goes to all ranks in equal parts.
        paired: whether it is between two ranks, with a communicator of their own.
    """

    name: str
    received: bool = False
    divided: bool = False
    paired: bool = False


_OPERATIONS: Final = {
    "allreduce": _Operation("ncclAllReduce"),
    "barrier": _Operation("ncclAllReduce"),
    "allgather": _Operation("ncclAllGather"),
    "reducescatter": _Operation("ncclReduceScatter", received=True),
    "alltoall": _Operation("ncclAlltoAll", divided=True),
    "broadcast": _Operation("ncclBroadcast"),
    "reduce": _Operation("ncclReduce"),
    "gather": _Operation("ncclGather"),
    "scatter": _Operation("ncclScatter", received=True),
    "send": _Operation("ncclSend", paired=True),
    "recv": _Operation("ncclRecv", received=True, paired=True),
}
"""By a part of PyTorch's name without underscores (`_allgather_base`); the first that fits."""

_BYTES: Final = {
    **dict.fromkeys(("Byte", "Char", "Bool"), 1),
    **dict.fromkeys(("Float8_e5m2", "Float8_e4m3fn", "Float8_e5m2fnuz", "Float8_e4m3fnuz"), 1),
    **dict.fromkeys(("Short", "Half", "BFloat16"), 2),
    **dict.fromkeys(("Int", "Float", "ComplexHalf"), 4),
    **dict.fromkeys(("Long", "Double", "ComplexFloat"), 8),
    "ComplexDouble": 16,
}


def collectives(
    events: Iterable[Event], keys: ThreadKeys, first_row: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`schema.RANGES` of domain `NCCL`, numbered from `first_row` on, and `schema.MESSAGES`."""
    ranges, messages = [], []
    for row, (event, operation, args) in enumerate(_named(events), first_row):
        start_ns, end_ns = span_ns(event)
        process, thread = on_thread(event, keys)
        ranges.append((start_ns, end_ns, "push_pop", process, thread, NCCL, operation.name, row))
        if thread is not None and (size := _size(operation, args)) is not None:
            communicator = None if operation.paired else _communicator(args)
            messages.append((start_ns, thread, size, communicator))
    return frame_of(ranges, schema.RANGES), frame_of(messages, schema.MESSAGES)


def _named(events: Iterable[Event]) -> Iterator[tuple[Event, _Operation, CollectiveArgs]]:
    for event in events:
        if event.name == RECORD:
            args = collective_args_of(event)
            name = str(args.name or "").lower().replace("_", "")
            fitting = (of for part, of in _OPERATIONS.items() if part in name)
            operation = next(fitting, None)
            if operation is not None:
                yield event, operation, args


def _size(operation: _Operation, args: CollectiveArgs) -> int | None:
    """The bytes of the message on this rank; None if the trace does not say it."""
    count = int_of(args.received if operation.received else args.sent)
    element = _BYTES.get(str(args.dtype))
    ranks = int_of(args.ranks) or 0
    if count is None or element is None or (operation.divided and ranks < 1):
        return None
    return int_of(count * element // (ranks if operation.divided else 1))


def _communicator(args: CollectiveArgs) -> int | None:
    """A number of the process group, which all of its ranks share; None if its ranks are not
    named."""
    members = str(args.members or "").strip()
    if len(members) <= len("[]"):
        return None
    group = f"{args.group} {members}"
    return int.from_bytes(blake2b(group.encode("utf-8", "replace"), digest_size=8).digest())
