"""Batches copied from the host to the GPU in the four possible ways.

A batch has many fields, as in a recommender model, so the GPU's wait for each copy adds up. From
pageable memory the driver copies through its own buffer while the host waits. From pinned memory
the GPU fetches the data itself, and `non_blocking` lets the host continue.
"""

from dataclasses import dataclass
from typing import Final

import torch

from nsysflow.runtime.regions import Region, region
from nsysflow.workloads.common.training import Config, Training, Work

POOL: Final = 4
"""Batches that are used in turn."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `h2d`.

    Attributes:
        fields: tensors per batch, each copied separately.
        rows: rows of a field.
        width: width of a field.
        hidden: width of the hidden layers.
    """

    fields: int
    rows: int
    width: int
    hidden: int


def h2d(config: Config[Options]) -> Work:
    """Copy the fields of a batch to the device and train on them as one input."""
    options, variant = config.options, config.variant
    widths = [options.width, options.hidden, options.hidden, options.hidden, options.width]
    training = Training(config, widths, options.fields * options.rows)
    pool = torch.randn(POOL, options.fields, options.rows, options.width, dtype=config.dtype)
    if config.cuda and variant in ("pinned", "pinned_blocking"):
        pool = pool.pin_memory()
    non_blocking = variant in ("pinned", "pageable_non_blocking")
    batches = [batch.unbind() for batch in pool]
    rows = torch.empty(options.fields * options.rows, options.width, **config.placed)
    on_device = rows.chunk(options.fields)

    def step(index: int) -> None:
        with region(Region.H2D):
            for target, field in zip(on_device, batches[index % POOL], strict=True):
                target.copy_(field, non_blocking=non_blocking)
        training.step(rows)

    note = "" if config.cuda else "a CPU has only one kind of memory"
    return Work(step=step, result=training.loss, flops=training.flops, note=note)
