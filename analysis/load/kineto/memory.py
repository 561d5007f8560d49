"""The GPU memory of a torch.profiler trace: what changed, and what could not be had (spec §26)."""

from collections.abc import Iterable, Iterator
from typing import Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.kineto.document import (
    Event,
    MemoryArgs,
    frame_of,
    int_of,
    memory_args_of,
    time_ns,
)
from nsysflow.analysis.load.kineto.running import ThreadKeys, on_thread

CHANGED: Final = "[memory]"
"""The name of an instant at which memory was allocated or freed."""

FAILED: Final = "[OutOfMemory]"
"""The name of an instant at which memory was asked for, and none was left."""

_GPU_TYPES: Final = (1, 6)
"""The numbers of GPUs among PyTorch's types of devices: CUDA and HIP."""


def memory_changes(events: Iterable[Event], keys: ThreadKeys, process: int | None) -> pl.DataFrame:
    """`schema.MEMORY` of what PyTorch's allocator gave out and took back on GPUs."""
    rows = [
        (
            *(time_ns(event.ts), row, device, process, on_thread(event, keys)[1], None),
            *("allocator", int_of(args.address), changed),
            *(int_of(args.allocated), int_of(args.reserved), None),
        )
        for row, (event, args, device, changed) in _on_gpus(events, CHANGED)
    ]
    return frame_of(rows, schema.MEMORY)


def out_of_memory(events: Iterable[Event], keys: ThreadKeys, process: int | None) -> pl.DataFrame:
    """`schema.OUT_OF_MEMORY` of what PyTorch's allocator could not give out on GPUs."""
    rows = [
        (time_ns(event.ts), device, process, on_thread(event, keys)[1], asked, None, None)
        for _, (event, _, device, asked) in _on_gpus(events, FAILED)
    ]
    return frame_of(rows, schema.OUT_OF_MEMORY)


def _on_gpus(
    events: Iterable[Event], name: str
) -> Iterator[tuple[int, tuple[Event, MemoryArgs, int, int]]]:
    """The events of this name that are of a GPU and say how many bytes, each with its place: the
    event, its arguments, the GPU and the bytes."""
    for place, event in enumerate(events):
        if event.name == name:
            args = memory_args_of(event)
            device, count = int_of(args.device, bits=32), int_of(args.bytes)
            if int_of(args.device_type) in _GPU_TYPES and device is not None and count is not None:
                yield place, (event, args, device, count)
