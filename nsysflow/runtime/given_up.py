"""Functions that torch.compile would have compiled too often, and gave up on: what torch logs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nsysflow.runtime.protocol import KEY
from nsysflow.runtime.regions import mark

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

_BEGIN: Final = "torch._dynamo hit config."
_LOGGED: Final = re.compile(
    rf"{re.escape(_BEGIN)}\w+ \(\d+\)"
    r"\s+function: '(?P<function>.{1,200}?)' \((?P<file>.+):(?P<line>\d+)\)"
    r"\s+last reason: (?:\d+/\d+: )?(?P<reason>[^\n]{1,200})"
)
_BESIDE: Final = re.compile(r"\s{2,}# | \(HINT: ")
"""What follows a guard: the line of the program that it is for, and advice."""

GaveUp = tuple[str, str, str]
"""The function, its file's name and line, and the guard that no longer held."""

GAVE_UP: Final[list[GaveUp]] = []
"""What this process was told so far."""


def note_given_up(record: logging.LogRecord) -> bool:
    """A filter for Dynamo's logger: notes what it gave up on, and lets every record pass."""
    named = _BEGIN in str(record.msg)  # without formatting all that Dynamo may log
    logged = _LOGGED.search(record.getMessage()) if named else None
    if logged is not None:
        place = f"{Path(logged['file']).name}:{logged['line']}"
        guard = _BESIDE.split(logged["reason"])[0].strip()
        GAVE_UP.append((logged["function"], place, guard))
        _mark(GAVE_UP[-1:], mark)
    return True


def list_given_up(mark: Callable[[str], None]) -> None:
    """Record a mark with all that was noted so far, if there is any."""
    if GAVE_UP:
        _mark(GAVE_UP, mark)


def _mark(given_up: list[GaveUp], mark: Callable[[str], None]) -> None:
    mark(json.dumps({KEY: {"gave_up": given_up}}))
