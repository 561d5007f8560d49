"""The parts of a GPU's time, as pictures stack them: their columns, labels and colours."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.base.units import duration, share
from nsysflow.report import palette
from nsysflow.report.palette import Colour


@dataclass(frozen=True, kw_only=True)
class Key:
    """An entry of a legend."""

    label: str
    colour: Colour


@dataclass(frozen=True, kw_only=True)
class Part(Key):
    """A part of a GPU's time, and its entry in legends.

    Attributes:
        column: of the tables, in ns.
    """

    column: str


WORK: Final = (
    Part(column="compute_ns", label="compute", colour=palette.CLASSES["compute"]),
    Part(
        column="comm_exposed_ns",
        label="exposed communication",
        colour=palette.CLASSES["communication"],
    ),
    Part(column="copy_exposed_ns", label="exposed copies", colour=palette.CLASSES["copy"]),
)
"""What a GPU does, in the order of the accounting."""

IDLE: Final = tuple(
    Part(column=f"{name}_ns", label=cause.label, colour=palette.CAUSES[name])
    for name, cause in CAUSES.items()
)
"""Why it idles, in the order of spec §3."""

ALL: Final = (*WORK, *(replace(part, label=f"idle: {part.label}") for part in IDLE))
"""All of its time."""


def timed(part: Part, row: Mapping[str, Any], steps: int) -> str:
    """A part with its figures: `compute 3.24 ms, 84 %`.

    Args:
        part: the part.
        row: of the accounting.
        steps: how many steps it is of, so that the time is given per step.
    """
    time = duration(round(row[part.column] / steps))
    return f"{part.label} {time}, {share(row[part.column], row['window_ns'])}"


def there(parts: Iterable[Part], rows: Sequence[Mapping[str, Any]]) -> list[Part]:
    """The parts of which any row has time."""
    return [part for part in parts if any(row[part.column] for row in rows)]
