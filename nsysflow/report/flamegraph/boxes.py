"""The idle time as a tree: report, phase, cause, then the stack, the outermost function first."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import polars as pl

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.analysis.tables.host_stacks import NOT_SAMPLED

Kind = Literal["report", "phase", "cause", "own", "library", "unknown"]
"""What a box stands for: of functions, whether they are the program's own, and whether any sample
says what ran."""

_FRAME: Final = re.compile(r"(?P<function>.+) \((?P<file>.+):(?P<line>\d+)\)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Place:
    """One level of a stack, which has a box of its own.

    Attributes:
        name: what is written in its box: a function, an operator, a phase, …
        file: the function's file; empty for what has none.
        kind: what it stands for.
    """

    name: str
    file: str = ""
    kind: Kind


@dataclass(kw_only=True)
class Box:
    """A place below another one, and all idle time in it.

    Attributes:
        place: what it stands for.
        ns: its idle time, with that of its children.
        lines: the idle time of each line that was running in it.
        children: the boxes below it.
    """

    place: Place
    ns: int = 0
    lines: Counter[int] = field(default_factory=Counter)
    children: "dict[Place, Box]" = field(default_factory=dict)

    @property
    def line(self) -> int | None:
        """The line with most of its idle time."""
        return max(self.lines, key=lambda line: (self.lines[line], -line), default=None)

    @property
    def widest_first(self) -> "list[Box]":
        """Its children, those with most idle time first."""
        return sorted(self.children.values(), key=lambda each: (-each.ns, each.place.name))


def boxes(idle_stacks: pl.DataFrame, own: Collection[str] = ()) -> Box:
    """The tree. Its root is all of the idle time; reports have boxes where there are several.

    Args:
        idle_stacks: `IDLE_STACKS`.
        own: the files of the program itself, as the stacks name them.
    """
    root = Box(place=Place(name="all idle time of host code and launches", kind="report"))
    several = idle_stacks["report"].n_unique() > 1
    for row in idle_stacks.iter_rows(named=True):
        report = [(Place(name=row["report"], kind="report"), None)] if several else []
        _add(root, [*report, *_levels(row, own)], row["idle_ns"])
    return root


def _levels(row: dict[str, Any], own: Collection[str]) -> Iterator[tuple[Place, int | None]]:
    """The levels of a row of `IDLE_STACKS`, outermost first, each with its line."""
    yield Place(name=row["phase"] or OUTSIDE, kind="phase"), None
    yield Place(name=CAUSES[row["cause"]].label, kind="cause"), None
    yield from (_level(frame, own) for frame in row["stack"])


def _level(frame: str, own: Collection[str]) -> tuple[Place, int | None]:
    """A frame of a stack. Lines of one function share a box, which is what people look for."""
    found = _FRAME.fullmatch(frame)
    if found is None:
        kind: Kind = "unknown" if frame == NOT_SAMPLED else "library"
        return Place(name=frame, kind=kind), None
    kind = "own" if found["file"] in own else "library"
    return Place(name=found["function"], file=found["file"], kind=kind), int(found["line"])


def _add(root: Box, path: Iterable[tuple[Place, int | None]], ns: int) -> None:
    box = root
    box.ns += ns
    for place, line in path:
        box = box.children.setdefault(place, Box(place=place))
        box.ns += ns
        if line is not None:
            box.lines[line] += ns
