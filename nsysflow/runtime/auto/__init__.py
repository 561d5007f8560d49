"""Ranges and steps of an unchanged PyTorch program.

`annotate` replaces a few functions of torch by ones that open a range around the same call. They
change no argument, result or exception, and step aside while torch compiles, exports or traces.
"""

from __future__ import annotations

from types import ModuleType

from nsysflow.runtime import collectors
from nsysflow.runtime.auto.modules import (
    annotate_compiling,
    annotate_engine,
    annotate_frameworks,
    annotate_functions,
    annotate_generation,
    annotate_modules,
)
from nsysflow.runtime.auto.optimizers import annotate_optimizers
from nsysflow.runtime.auto.ranges import Ranges

__all__ = ["annotate"]

_PARTS = (
    annotate_modules,
    annotate_engine,
    annotate_optimizers,
    annotate_functions,
    annotate_frameworks,
    annotate_compiling,
    annotate_generation,
)


def annotate(torch: ModuleType) -> None:
    """Give the program's phases and steps ranges. Called once, right after torch was imported."""
    if collectors.COLLECTOR_HERE is not None:
        ranges = Ranges(torch, collectors.COLLECTOR_HERE)
        for annotate_part in _PARTS:
            annotate_part(torch, ranges)
