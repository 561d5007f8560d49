"""A diagnosis as people read it, and as programs do."""

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.text import Text

from nsysflow.doctor.checks import Diagnosis

WIDTH_MAX: Final = 100
"""Columns: sentences longer than that are hard to read."""

_COLOURS: Final = {"ok": "green", "note": "yellow", "problem": "bold red"}
_INDENT: Final = " " * 21


def page(diagnosis: Diagnosis, home: Path, *, width: int) -> Iterator[Text]:
    """The lines: a check each, with what to type below it; what works and what to type first at
    the end. `home` is shown as `~`."""
    room = min(width, WIDTH_MAX) - len(_INDENT)
    for check in diagnosis.checks:
        seen, *more = _wrapped(_short(check.seen, home), room)
        yield Text.assemble(
            (f"{check.status:<9}", _COLOURS[check.status]), f"{check.check:<12}{seen}"
        )
        yield from (Text(_INDENT + line) for line in more)
        yield from (Text(_INDENT + line) for line in _advice(_short(check.advice, home), room))
    yield Text()
    yield Text(f"Works here: {', '.join(diagnosis.works)}")
    yield Text(f"Type first: {diagnosis.first}")


def as_json(diagnosis: Diagnosis, home: Path) -> str:
    """The same as a JSON document; `home` is shown as `~`."""
    checks = [
        asdict(check) | {"seen": _short(check.seen, home), "advice": _short(check.advice, home)}
        for check in diagnosis.checks
    ]
    return json.dumps(asdict(diagnosis) | {"checks": checks}, indent=2)


def _advice(advice: str, room: int) -> Iterator[str]:
    """Sentences set in the room there is; what to type as it is, to be copied."""
    for line in advice.splitlines():
        if line.startswith(" "):
            yield line
        else:
            yield from _wrapped(line, room)


def _wrapped(text: str, room: int) -> list[str]:
    """Paths and options stay whole."""
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)


def _short(text: str, home: Path) -> str:
    return text.replace(f"{home}/", "~/") if home != Path("/") else text
