"""Who records the ranges and marks of this process, if anyone does.

torch and nvtx are never imported by name: a script that uses neither pays for neither, and the
command line, which shares the vocabulary of ranges, must not reach torch.
"""

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Literal, Protocol, get_args

from nsysflow.handshake import COLLECTOR, spelled

Collector = Literal["nsys", "kineto"]


def attached(environ: Mapping[str, str]) -> Collector | None:
    """Who profiles a process with these environment variables; None when nobody does."""
    collectors: tuple[Collector, ...] = get_args(Collector)
    for collector in collectors:
        if environ.get(COLLECTOR) == collector:
            return collector
    # nsys sets both for what it starts; another tool that takes NVTX sets the second
    if environ.get("NSYS_PROFILING_SESSION_ID") or environ.get("NVTX_INJECTION64_PATH"):
        return "nsys"
    return None


class Recorder(Protocol):
    """Takes ranges, which nest per thread, and marks."""

    def open(self, name: str, payload: int | None) -> Callable[[], object]:
        """Open a range on this thread; what is returned closes it."""

    def mark(self, text: str) -> None:
        """An instant."""


class Nvtx:
    """The nvtx package: ranges with payload, in NVTX's default domain."""

    def __init__(self, nvtx: ModuleType) -> None:
        self._nvtx = nvtx

    def open(self, name: str, payload: int | None) -> Callable[[], object]:
        self._nvtx.push_range(name, payload=payload)
        pop: Callable[[], object] = self._nvtx.pop_range
        return pop

    def mark(self, text: str) -> None:
        self._nvtx.mark(text)


class TorchNvtx:
    """NVTX as a CUDA build of torch has it: without payloads."""

    def __init__(self, torch: ModuleType) -> None:
        self._nvtx = torch.cuda.nvtx

    def open(self, name: str, payload: int | None) -> Callable[[], object]:
        self._nvtx.range_push(name)
        pop: Callable[[], object] = self._nvtx.range_pop
        return pop

    def mark(self, text: str) -> None:
        self._nvtx.mark(text)


class RecordFunction:
    """torch.profiler's ranges. It has no marks; what the window says stands in the trace."""

    def __init__(self, profiler: ModuleType) -> None:
        self._record_function = profiler.record_function

    def open(self, name: str, payload: int | None) -> Callable[[], object]:
        opened = self._record_function(spelled(name))
        opened.__enter__()
        return partial(opened.__exit__, None, None, None)

    def mark(self, text: str) -> None:
        pass


_missing: set[str] = set()
"""Modules whose import failed here."""


def find_recorder(collector: Collector) -> Recorder | None:
    """What takes this process's ranges under `collector`; None while there is nothing for it."""
    if collector == "kineto":
        profiler = _imported("torch.profiler")
        return None if profiler is None else RecordFunction(profiler)
    nvtx = _imported("nvtx")
    return _torch_nvtx() if nvtx is None else Nvtx(nvtx)


def _imported(name: str) -> ModuleType | None:
    """The module; where it failed before, only if somebody else has imported it since."""
    # each range asks while nothing takes it, and a failed search of all folders took 30 us
    if name in _missing and name not in sys.modules:
        return None
    try:
        return import_module(name)
    except ImportError:
        _missing.add(name)
        return None


def _torch_nvtx() -> Recorder | None:
    torch = sys.modules.get("torch")
    # a CPU build has torch.cuda.nvtx too, and raises when it is called (2.13.0, 2026-11)
    if torch is not None and torch.backends.cuda.is_built():
        return TorchNvtx(torch)
    return None


COLLECTOR_HERE: Collector | None = attached(os.environ)
"""Who profiles this process: settled before it starts."""
