"""A side of a comparison: one track of each of its captures, and what their steps consist of."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

from nsysflow.compare.captures import PartName, Row, Track

Runs: TypeAlias = Sequence[Sequence[int]]
"""A figure of each step, run by run."""


@dataclass(frozen=True, kw_only=True, order=True)
class Key:
    """What a row is: rows of equal keys are the same thing. See `Row`."""

    part: PartName
    kind: str
    name: str
    grid: str
    phase: str
    source: str
    via: str

    @classmethod
    def of(cls, row: Row) -> "Key":
        """What a row is."""
        return cls(
            part=row.part,
            kind=row.kind,
            name=row.name,
            grid=row.grid or "",
            phase=row.phase,
            source=row.source or "",
            via=row.via or "",
        )


@dataclass(frozen=True)
class Series:
    """What one thing took, step by step and run by run. See `Row`."""

    ns: Runs
    duration_ns: Runs
    count: Runs

    @classmethod
    def sum_of(cls, some: Iterable["Series"]) -> "Series":
        """What several things took together, step by step."""
        all_of_them = list(some)
        return cls(
            *(
                [_added(runs) for runs in zip(*figures, strict=True)]
                for figures in zip(
                    *((each.ns, each.duration_ns, each.count) for each in all_of_them), strict=True
                )
            )
        )


def _added(some: Iterable[Sequence[int]]) -> list[int]:
    return [sum(values) for values in zip(*some, strict=True)]


@dataclass(frozen=True)
class Side:
    """The steps of one side, of one process and GPU.

    Attributes:
        tracks: one of each capture.
    """

    tracks: Sequence[Track]

    @property
    def runs(self) -> Runs:
        """How long each step took."""
        return [track.duration_ns for track in self.tracks]

    @cached_property
    def steps(self) -> int:
        """How many steps there are, in all runs."""
        return sum(map(len, self.runs))

    @cached_property
    def mean_ns(self) -> Fraction:
        """The mean of all steps."""
        return self.per_step(self.runs)

    def per_step(self, runs: Runs) -> Fraction:
        """The mean of a figure over all steps."""
        return Fraction(sum(map(sum, runs)), self.steps)

    @cached_property
    def nothing(self) -> Series:
        """What a thing took that is not there."""
        zeros = [[0] * len(run) for run in self.runs]
        return Series(zeros, zeros, zeros)

    @cached_property
    def rows(self) -> dict[Key, Series]:
        """What the steps consist of."""
        found: dict[Key, list[Row | None]] = {}
        for run, track in enumerate(self.tracks):
            for row in track.rows:
                found.setdefault(Key.of(row), [None] * len(self.tracks))[run] = row
        return {key: self._series(rows) for key, rows in found.items()}

    @cached_property
    def short_names(self) -> dict[str, str]:
        """How screens show each name."""
        return {row.name: row.short_name for track in self.tracks for row in track.rows}

    def _series(self, rows: Sequence[Row | None]) -> Series:
        """A row of each run; None where the run does not have it."""
        return Series(
            *(
                [
                    zeros if row is None else getattr(row, figure)
                    for row, zeros in zip(rows, self.nothing.ns, strict=True)
                ]
                for figure in ("ns", "duration_ns", "count")
            )
        )
