"""Captures as comparisons see them: per process and GPU the steps, and what each part took."""

from collections.abc import Sequence
from dataclasses import dataclass
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
        steps: the numbers of the compared steps: all after start-up that were recorded whole. One
            None stands for a whole window without steps.
        kinds: `steady` or `one-off`, per step; None likewise.
        duration_ns: per step.
        rows: what they consist of.
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

    @property
    def has_steps(self) -> bool:
        """Whether these are steps, and not a whole window."""
        return self.step_name is not None

    @property
    def mean_ns(self) -> float:
        """The mean of its steps."""
        return sum(self.duration_ns) / len(self.duration_ns)


@dataclass(frozen=True, kw_only=True)
class Found:
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
        findings: what to change, the largest saving first; None where they were not computed.
    """

    name: str
    tracks: Sequence[Track]
    selection: str = ""
    unit: str | None = None
    invalid: str | None = None
    findings: Sequence[Found] | None = None

    @cached_property
    def slowest(self) -> Track:
        """The track with the longest steps, in the mean: the one that others wait for. A GPU
        without steps counts only where none has any."""
        return max(self.tracks, key=lambda track: (track.has_steps, track.mean_ns))

    @property
    def gpus(self) -> list[str]:
        """The names of its GPUs, one per track."""
        return [track.gpu or "unknown GPU" for track in self.tracks]
