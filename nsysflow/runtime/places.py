"""Where a module's code is: its class, the lines of its `forward`, and those that call it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dis import findlinestarts
from pathlib import Path
from types import FrameType
from typing import Any, Final

UNMADE: Final = "_forward_unimplemented"
"""The name of the `forward` of containers, such as ModuleList, which nobody calls."""

LETTERS: Final = 200
"""So long is a name in a mark at most."""

_NO_CALLERS: Final = ("torch.", "nsysflow.runtime.")
"""Modules between a call and the line of the program that makes it."""


def unwrapped(module: Any) -> Any:
    return getattr(module, "_orig_mod", module)  # what torch.compile was given


def class_of(module: Any) -> str:
    return str(type(unwrapped(module)).__name__)


def place_of(kind: Any) -> str:
    """`model.py:12-30`, the lines of its `forward`; empty for torch's own and without lines."""
    code = getattr(kind.forward, "__code__", None)
    if code is None or kind.forward.__module__.startswith("torch.") or code.co_name == UNMADE:
        return ""
    lines = [line for _, line in findlinestarts(code) if line is not None]
    file = Path(code.co_filename).name
    return f"{file}:{code.co_firstlineno}-{max(lines, default=code.co_firstlineno)}"[:LETTERS]


def calling_frames() -> Iterator[FrameType]:
    """The frames of the program that run, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not f"{frame.f_globals.get('__name__', '')}.".startswith(_NO_CALLERS):
            yield frame
        frame = frame.f_back


def calling_lines() -> Iterator[str]:
    """Their lines, as `train.py:12`."""
    return map(line_of, calling_frames())


def line_of(frame: FrameType) -> str:
    """Where a frame is, as `train.py:12`."""
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"[:LETTERS]


def calling_line() -> str:
    """The line that calls a module; empty where only torch does."""
    return next(calling_lines(), "")
