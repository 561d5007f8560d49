"""Which line of the program costs most of what a budget limits?"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.base.names import SourceLine
from nsysflow.base.units import duration
from nsysflow.budgets.figures import Figure
from nsysflow.compare.captures import Capture, Found

_WORTH_LOOKING: Final = 0.1
"""A line that costs less than this share of the largest place is not where to start."""

_Place: TypeAlias = tuple[str | None, str, str]
"""The line, the phase and the cause."""


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """A place in the program, and what it costs.

    Attributes:
        source: such as `train.py:42 in step`; None where it is not known.
        what: what it costs, a clause.
    """

    source: str | None
    what: str

    @classmethod
    def of_finding(cls, found: Found) -> "Culprit":
        """What a report found."""
        return cls(source=found.source, what=found.title)

    @property
    def line(self) -> SourceLine | None:
        """Its line; None where it is not known."""
        return SourceLine.of(self.source or "")


def culprits_of(figure: Figure, captures: Sequence[Capture]) -> tuple[Culprit, ...]:
    """The most idle time of one cause at one place in what a figure sums; and if that has no line,
    the most at a line, unless that is little. Empty where nothing of it is idle."""
    sums_ns: dict[_Place, int] = defaultdict(int)
    steps = 0
    for capture in captures:
        steps += len(figure.track(capture).steps)
        for row in figure.rows(capture):
            if row.part == "idle":
                sums_ns[row.source, row.phase, row.kind] += sum(row.ns)
    places = sorted(sums_ns, key=lambda place: -sums_ns[place])
    at_line = next((place for place in places if place[0] is not None), None)
    shown = places[:1]
    if at_line and at_line not in shown and _worth_looking(sums_ns[at_line], sums_ns[shown[0]]):
        shown.append(at_line)
    return tuple(_culprit(place, sums_ns[place] / steps) for place in shown if sums_ns[place])


def _worth_looking(ns: int, largest_ns: int) -> bool:
    return ns >= _WORTH_LOOKING * largest_ns


def _culprit(place: _Place, ns: float) -> Culprit:
    source, phase, cause = place
    label = CAUSES[cause].label if cause in CAUSES else cause
    inside = f" in {phase}" if phase else ""
    at = f", {source}" if source else ""
    return Culprit(source=source, what=f"{label}{inside}{at}: {duration(round(ns))} a step")
