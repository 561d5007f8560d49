"""What frameworks do around torch: an engine's step, and the transfer of a batch to the GPU."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Final

from nsysflow.runtime.auto.ranges import Ranges
from nsysflow.runtime.inject.nsysflow_hook import when_imported

_FUNCTIONS: Final = (
    ("deepspeed.runtime.engine", "DeepSpeedEngine", "step", "optimizer"),
    ("accelerate.data_loader", None, "send_to_device", "data"),
    ("lightning.pytorch.strategies.strategy", "Strategy", "batch_to_device", "data"),
    ("pytorch_lightning.strategies.strategy", "Strategy", "batch_to_device", "data"),
)
"""Module, class (None: a function of the module), function and its range. DeepSpeed's own step does
more than the torch optimizer in it: it reduces gradients and casts parameters."""


def annotate(_torch: ModuleType, ranges: Ranges) -> None:
    """Put a range around each of them, once the program imports it."""
    for module, owner, function, name in _FUNCTIONS:
        when_imported(module, partial(_put_around, ranges, owner, function, name))


def _put_around(
    ranges: Ranges, owner: str | None, function: str, name: str, module: ModuleType
) -> None:
    place = getattr(module, owner, None) if owner else module
    if hasattr(place, function):  # versions differ
        ranges.put_around(place, function, name)
