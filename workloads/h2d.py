"""Batches from the host to the GPU, in the four ways in which a copy can be made.

A batch has many fields, as that of a recommender has, so that what one copy makes the GPU wait
counts. From pageable memory the driver copies through a buffer of its own, while the host waits;
from pinned memory the GPU fetches it, and only `non_blocking` lets the host go on.
"""

from dataclasses import dataclass
from typing import Final

import torch

from nsysflow.regions import Region, region
from nsysflow.workloads.config import Config, Work
from nsysflow.workloads.training import Training

POOL: Final = 4
"""Batches that take turns."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Attributes:
    fields: tensors in a batch, each copied by itself.
    rows: of a field.
    width: of a field.
    hidden: width of the layers between.
    """

    fields: int
    rows: int
    width: int
    hidden: int


def h2d(config: Config[Options]) -> Work:
    """Copy the fields of a batch to the device, and train on them as rows of one input."""
    options, variant = config.options, config.variant
    widths = [options.width, options.hidden, options.hidden, options.hidden, options.width]
    training = Training(config, widths, options.fields * options.rows)
    pool = torch.randn(POOL, options.fields, options.rows, options.width, dtype=config.dtype)
    if config.cuda and variant in ("pinned", "pinned_blocking"):
        pool = pool.pin_memory()
    non_blocking = variant in ("pinned", "pageable_non_blocking")
    batches = [batch.unbind() for batch in pool]
    rows = torch.empty(options.fields * options.rows, options.width, **config.placed)
    fields_there = rows.chunk(options.fields)

    def step(index: int) -> None:
        with region(Region.H2D):
            for there, here in zip(fields_there, batches[index % POOL], strict=True):
                there.copy_(here, non_blocking=non_blocking)
        training.step(rows)

    note = "" if config.cuda else "all memory is alike here"
    return Work(step=step, result=training.loss, flops=training.flops, note=note)
