"""Rows of tiny traces with times in us, so that lags of a few us are small."""

from dataclasses import replace
from typing import Any, Final

from tests import tiny
from tests.oracle.model import Call, Op, Range, Sample

US: Final = 1_000


def launch(start: int, end: int, number: int, **more: Any) -> Call:
    """The launch of that number."""
    return tiny.launch(start * US, end * US, number, **more)


def call(start: int, end: int, name: str, **more: Any) -> Call:
    """A call that launches nothing."""
    return tiny.call(start * US, end * US, name, **more)


def kernel(start: int, end: int, number: int, *, stream: int = 7, name: str = "k") -> Op:
    """The kernel of that launch."""
    return replace(tiny.kernel(start * US, end * US, number, name=name), stream=stream)


def copy(
    start: int, end: int, number: int | None, way: str, source: str, target: str, **more: Any
) -> Op:
    """The memcpy of that launch."""
    return tiny.copy(start * US, end * US, number, way, source, target, **more)


def upload(start: int, end: int, number: int, *, source: str) -> Op:
    """A copy to the GPU from `pageable` or `pinned` memory."""
    return copy(start, end, number, "HtoD", source, "device")


def opened(start: int, end: int, name: str) -> Range:
    """An NVTX range."""
    return tiny.opened(start * US, end * US, name)


def sample(at: int, *functions: str) -> Sample:
    """What the main thread ran at that us, the innermost function first."""
    return tiny.sample(at * US, *functions)
