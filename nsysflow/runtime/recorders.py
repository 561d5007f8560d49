"""What writes the ranges of this process: nvtx, torch.profiler, or nobody."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Final, Protocol

from nsysflow.runtime.protocol import Collector

_NOT_KEPT: Final = re.compile(r"""[^ !#-\[\]-~]|<(?=U\+)""")
_ESCAPE: Final = re.compile(r"<U\+([0-9A-F]{2,6})>")


def ascii_name(name: str) -> str:
    """`name` in characters that a Kineto trace keeps: `<U+FC>` stands for `ü`.

    torch 2.13 (2026-11) writes `unknown` for a name that is not printable ASCII, turns a backslash
    into `/`, and does not escape a quote, which makes the whole trace unreadable.
    """
    return _NOT_KEPT.sub(lambda match: f"<U+{ord(match[0]):02X}>", name)


def original_name(text: str) -> str:
    """The name that `ascii_name` turned into `text`."""
    return _ESCAPE.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    code = int(match[1], 16)
    # half of a surrogate pair is no character
    return match[0] if code in range(0xD800, 0xE000) or code > sys.maxunicode else chr(code)


class Recorder(Protocol):
    """Records ranges, which nest per thread, and marks."""

    def open(self, name: str, payload: int | None) -> Callable[[], object]:
        """Open a range on this thread; calling what is returned closes it."""

    def mark(self, text: str) -> None:
        """Record an instant."""


class Nvtx:
    """The nvtx package: ranges with payload, by default in NVTX's default domain."""

    def __init__(self, nvtx: ModuleType, domain: str | None = None) -> None:
        self._nvtx = nvtx
        self._domain = domain
        self._pop = partial(nvtx.pop_range, domain)

    def open(self, name: str, payload: int | None) -> Callable[[], object]:
        self._nvtx.push_range(name, domain=self._domain, payload=payload)
        return self._pop

    def mark(self, text: str) -> None:
        self._nvtx.mark(text)


class TorchNvtx:
    """The NVTX functions of a CUDA build of torch: ranges without payload or domain."""

    def __init__(self, torch: ModuleType, domain: str | None = None) -> None:
        self._nvtx = torch.cuda.nvtx
        self._prefix = _prefix(domain)

    def open(self, name: str, payload: int | None) -> Callable[[], object]:
        self._nvtx.range_push(self._prefix + name)
        pop: Callable[[], object] = self._nvtx.range_pop
        return pop

    def mark(self, text: str) -> None:
        self._nvtx.mark(text)


class RecordFunction:
    """torch.profiler's ranges. It has no marks: the trace itself describes the window."""

    def __init__(self, profiler: ModuleType) -> None:
        self._record_function = profiler.record_function

    def open(self, name: str, payload: int | None) -> Callable[[], object]:
        opened = self._record_function(ascii_name(name))
        opened.__enter__()
        return partial(opened.__exit__, None, None, None)

    def mark(self, text: str) -> None:
        pass


class FastRecordFunction:
    """Ranges of torch.profiler that are no operator of torch: a tenth of the time (0.3 us), and
    neither a trace of the program's operators nor a dispatch mode of its own sees them.

    The profiler takes them for operators; their names have the domain as a prefix. A range that is
    opened while nothing records is none: torch would raise if it ended in a recording.
    """

    def __init__(self, torch: ModuleType, domain: str) -> None:
        self._record_function = torch._C._profiler._RecordFunctionFast
        self._is_recording = torch.autograd._profiler_enabled
        self._prefix = _prefix(domain)

    def open(self, name: str, payload: int | None) -> Callable[[], object]:
        if not self._is_recording():
            return nothing
        opened = self._record_function(self._prefix + ascii_name(name))
        opened.__enter__()
        return partial(opened.__exit__, None, None, None)

    def mark(self, text: str) -> None:
        pass


def nothing() -> None:
    """Closes a range that was not opened."""


def _prefix(domain: str | None) -> str:
    return "" if domain is None else f"{domain}:"


_missing: set[str] = set()
"""Modules that could not be imported here."""


def find_recorder(collector: Collector, domain: str | None = None) -> Recorder | None:
    """What records this process's ranges for `collector`; None if its package is missing.

    Args:
        collector: who profiles this process.
        domain: the domain of the ranges; None for the program's own, which have none.
    """
    if collector == "kineto":
        profiler = _imported("torch.profiler")
        if profiler is None:
            return None
        return (
            RecordFunction(profiler)
            if domain is None
            else FastRecordFunction(sys.modules["torch"], domain)
        )
    nvtx = _imported("nvtx")
    return _torch_nvtx(domain) if nvtx is None else Nvtx(nvtx, domain)


def _imported(name: str) -> ModuleType | None:
    """The module, or None. After a failed import it is only taken once the program has it."""
    # every range asks while there is no recorder, and a failed search of all folders took 30 us
    if name in _missing and name not in sys.modules:
        return None
    try:
        return import_module(name)
    except ImportError:
        _missing.add(name)
        return None


def _torch_nvtx(domain: str | None) -> Recorder | None:
    torch = sys.modules.get("torch")
    # a CPU build has torch.cuda.nvtx too, and raises when it is called (2.13.0, 2026-11)
    if torch is not None and torch.backends.cuda.is_built():
        return TorchNvtx(torch, domain)
    return None
