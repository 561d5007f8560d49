"""A diagnosis as a page, and as JSON."""

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.text import Text

from nsysflow.record.doctor import Check, Diagnosis

WIDTH_MAX: Final = 100
"""Columns; longer lines are hard to read."""

_COLOURS: Final = {"ok": "green", "note": "yellow", "problem": "red"}
_INDENT: Final = " " * 21


def doctor_page(diagnosis: Diagnosis, home: Path, *, width: int) -> Iterator[Text]:
    """The lines of the page: each check with what to do about it, what works, and what to type
    first. `home` is shown as `~`."""
    room = min(width, WIDTH_MAX) - len(_INDENT)
    for check in diagnosis.checks:
        seen, *more = _wrapped(_short(check.seen, home), room)
        yield Text.assemble(
            (f"{check.status:<9}", _COLOURS[check.status]), f"{check.check:<12}{seen}"
        )
        yield from (Text(_INDENT + line) for line in more)
        yield from (Text(_INDENT + line) for line in _advice(check, home, room))
    yield Text()
    yield Text(f"Works here: {', '.join(diagnosis.works)}")
    yield Text(f"Type first: {diagnosis.first}")


def doctor_json(diagnosis: Diagnosis, home: Path) -> str:
    """The diagnosis as a JSON document; `home` is shown as `~`."""
    checks = [
        {name: _short(text, home) for name, text in asdict(check).items()}
        for check in diagnosis.checks
    ]
    return json.dumps(asdict(diagnosis) | {"checks": checks}, indent=2)


def _advice(check: Check, home: Path, room: int) -> Iterator[str]:
    """The advice, wrapped, and the command on a line of its own, unwrapped so it can be copied."""
    end = ":" if check.command else ""
    yield from _wrapped(_short(check.advice, home) + end, room)
    if check.command:
        yield f"  {_short(check.command, home)}"


def _wrapped(text: str, room: int) -> list[str]:
    """The text in lines; paths and options stay whole."""
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)


def _short(text: str, home: Path) -> str:
    return text.replace(f"{home}/", "~/") if home != Path("/") else text
