"""Captures as comparisons see them, and a side of a comparison: a track of each of its captures."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal, TypeAlias

PartName: TypeAlias = Literal["compute", "communication", "copies", "idle"]
"""What a step's time is split into: compute, exposed communication and copies, idle."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One part of the steps: a kernel, a copy, or idle time of one cause at one place.

    Attributes:
        part: which of the four it belongs to.
        kind: the class of kernels, the kind of copies, or the cause of idle time.
        name: the full name of the kernel or copy, or the call that idle time is blamed on.
        short_name: the same, as screens show it.
        grid: of kernels, e.g. `128x1x1`; None where it is not known.
        phase: its path; empty outside all ranges.
        source: the program's line, e.g. `train.py:42 in step`; None where it is not known.
        via: the framework's line below it.
        ns: how much of each step it took: the rows of a step sum to its duration.
        duration_ns: of operations, how long they ran in each step, overlapped or not.
        count: how many there were in each step.
    """

    part: PartName
    kind: str
    name: str
    short_name: str
    grid: str | None
    phase: str
    source: str | None
    via: str | None
    ns: Sequence[int]
    duration_ns: Sequence[int]
    count: Sequence[int]

    def inside(self, phase: str) -> bool:
        """Whether it belongs to a phase or to one nested in it."""
        return self.phase == phase or self.phase.startswith(f"{phase}/")


@dataclass(frozen=True)
class Track:
    """One process on one GPU.

    Attributes:
        report: the report's name.
        process: the OS pid; None where the GPU has no steps.
        device: the GPU's index.
        gpu: its name.
        step_name: the range that is one step; None without steps.
        unprofiled_step_ns: a step without the profiler; None where it was not measured.
        steps: the numbers of the compared steps: all after start-up that were recorded whole; with
            `--steps` those that it takes. One None stands for a whole window without steps.
        kinds: `steady`, `one-off`, or `start-up` where `--steps` took it; None likewise.
        duration_ns: per step.
        rows: what they consist of.
        sm_clock_mhz: the GPU's mean clock over these steps; None where it is not known.
    """

    report: str
    process: int | None
    device: int
    gpu: str | None
    step_name: str | None
    unprofiled_step_ns: int | None
    steps: Sequence[int | None]
    kinds: Sequence[str | None]
    duration_ns: Sequence[int]
    rows: Sequence[Row]
    sm_clock_mhz: float | None = None

    @property
    def has_steps(self) -> bool:
        """Whether these are steps, and not a whole window."""
        return self.step_name is not None

    @property
    def mean_ns(self) -> float:
        """The mean of its steps."""
        return sum(self.duration_ns) / len(self.duration_ns)


@dataclass(frozen=True, kw_only=True)
class LoadedCaptures:
    """A finding of a report, as `check` needs it."""

    rule: str
    title: str
    phase: str | None
    source: str | None
    saving_high_ns: int | None
    saving_pct: float | None


@dataclass(frozen=True)
class Capture:
    """One recording of a program: its processes on their GPUs.

    Attributes:
        name: what to call it.
        tracks: a track per process and GPU, by rank.
        selection: the options that narrowed it when it was analysed; empty for all of it.
        unit: the arithmetic of most of its matrix products; None where it is not known.
        invalid: why it cannot be judged, a sentence; None for a sound recording.
        findings: what to change, in the order in which to act; None where they were not computed.
        said_step_ns: what its document says that a step takes; None where no steps are judged, and
            in documents from before that was in them.
    """

    name: str
    tracks: Sequence[Track]
    selection: str = ""
    unit: str | None = None
    invalid: str | None = None
    findings: Sequence[LoadedCaptures] | None = None
    said_step_ns: int | None = None

    @property
    def step_ns(self) -> int:
        """What a step takes: the one figure of it that is printed (spec §8.23)."""
        return round(self.slowest.mean_ns) if self.said_step_ns is None else self.said_step_ns

    @cached_property
    def slowest(self) -> Track:
        """The track with the longest steps, in the mean: the one that others wait for. A GPU
        without steps counts only where none has any."""
        return max(self.tracks, key=lambda track: (track.has_steps, track.mean_ns))

    @property
    def gpus(self) -> list[str]:
        """The names of its GPUs, one per track."""
        return [track.gpu or "unknown GPU" for track in self.tracks]


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
                    *((series.ns, series.duration_ns, series.count) for series in all_of_them),
                    strict=True,
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
        rows_by_key: dict[Key, list[Row | None]] = {}
        for run, track in enumerate(self.tracks):
            for row in track.rows:
                rows_by_key.setdefault(Key.of(row), [None] * len(self.tracks))[run] = row
        return {key: self._series(rows) for key, rows in rows_by_key.items()}

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
