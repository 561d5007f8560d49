"""Functions of torch that are a phase by themselves: `data`, `clip_grad`, `save`."""

from __future__ import annotations

from types import ModuleType
from typing import Final

from nsysflow.runtime.auto.ranges import Ranges
from nsysflow.runtime.inject.nsysflow_hook import when_imported

_FSDP: Final = "torch.distributed.fsdp.fully_sharded_data_parallel"


def annotate(torch: ModuleType, ranges: Ranges) -> None:
    """Put a range around each of them."""
    batches = torch.utils.data.dataloader._BaseDataLoaderIter
    ranges.put_around(batches, "__next__", "data", busy=True)

    for owner in (torch.nn.utils, torch.nn.utils.clip_grad):
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            ranges.put_around(owner, name, "clip_grad")
    when_imported(
        _FSDP,
        lambda fsdp: ranges.put_around(
            fsdp.FullyShardedDataParallel, "clip_grad_norm_", "clip_grad"
        ),
    )

    for owner in (torch, torch.serialization):
        ranges.put_around(owner, "save", "save")
