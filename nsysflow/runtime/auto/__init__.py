"""Ranges and steps of an unchanged PyTorch program.

`annotate` replaces a few functions of torch by ones that open a range around the same call. They
change no argument, result or exception, and step aside while torch compiles, exports or traces.
"""

from __future__ import annotations

import atexit
import os
from types import ModuleType

from nsysflow.runtime import protocol
from nsysflow.runtime.auto.compiling import annotate_compiling
from nsysflow.runtime.auto.modules import (
    annotate_engine,
    annotate_frameworks,
    annotate_functions,
    annotate_generation,
    annotate_loaders,
    annotate_modules,
    look_at_steps,
    notice_evaluation,
    notice_replays,
)
from nsysflow.runtime.auto.optimizers import annotate_optimizers, count_optimizer_steps
from nsysflow.runtime.auto.ranges import Ranges
from nsysflow.runtime.captures import mark_loaders, mark_reading, mark_readings
from nsysflow.runtime.cpu import READER
from nsysflow.runtime.gpu_states import SAMPLER
from nsysflow.runtime.loaders import LOADERS
from nsysflow.runtime.memory import HISTORY
from nsysflow.runtime.protocol import CAPTURE, PLAIN
from nsysflow.runtime.regions import mark

__all__ = ["annotate"]

_PARTS = (
    annotate_modules,
    annotate_engine,
    annotate_optimizers,
    annotate_loaders,  # before the range around the same function, which takes time itself
    annotate_functions,
    annotate_frameworks,
    annotate_compiling,
    annotate_generation,
    notice_evaluation,
    notice_replays,
    look_at_steps,
)


def annotate(torch: ModuleType) -> None:
    """Give the program's phases and steps ranges; in a plain run, only count its steps.

    Called once, right after torch was imported.
    """
    if PLAIN in os.environ:
        _count_steps(torch)
    elif protocol.COLLECTOR_HERE is not None:
        ranges = Ranges(torch, protocol.COLLECTOR_HERE)
        for annotate_part in _PARTS:
            annotate_part(torch, ranges)
        _record_beside()


def _record_beside() -> None:
    """Record GPUs, CPUs and loaders from now on, or get ready where only a window is recorded."""
    if CAPTURE in os.environ or protocol.COLLECTOR_HERE == "kineto":
        SAMPLER.prepare()
    else:
        SAMPLER.begin(mark_readings)
        READER.begin(mark_reading)
        atexit.register(READER.end, mark_reading)
        LOADERS.begin(mark_loaders)
        HISTORY.begin(mark)


def _count_steps(torch: ModuleType) -> None:
    """Count steps, and wrap no more than that takes: calls of modules only until an optimizer is
    made, whose steps count from then on."""
    ranges, call = Ranges(torch, None), torch.nn.Module.__call__

    def count_no_calls() -> None:
        torch.nn.Module.__call__ = call

    annotate_modules(torch, ranges)
    notice_evaluation(torch, ranges)
    count_optimizer_steps(torch, ranges, when_made=count_no_calls)
