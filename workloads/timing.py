"""How long the phases of a step take on the GPU, one by one and together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from nsysflow.kernels.timer import CUDATimer, CUDATimerCollection
from nsysflow.workloads.graphs import captured
from nsysflow.workloads.phases import AnyPhase, Phase, parts_of

WARM_UPS: Final = 3
STEPS: Final = 20
"""Timed eagerly, and replays of a graph."""
CALLS: Final = 20
"""Of a phase in the graph that times it, so that what a replay costs is shared by so many."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """What a step takes in one way of running it; ns.

    Attributes:
        name: of that way.
        phases_ns: of each phase, alone; None where it launches nothing.
        step_ns: of the whole step, measured and not added up.
    """

    name: str
    phases_ns: tuple[int | None, ...]
    step_ns: int

    @property
    def sum_ns(self) -> int:
        """Of the phases."""
        return sum(phase_ns or 0 for phase_ns in self.phases_ns)


def eager(name: str, phases: Sequence[AnyPhase]) -> Column:
    """Launched one by one: from event to event, so that a GPU that waits for the host is in it."""
    parts = list(parts_of(phases))
    for _ in range(WARM_UPS):
        _run(parts)
    timers = CUDATimerCollection([part.name for part in parts])
    for _ in range(STEPS):
        for part in parts:
            if not part.empty:
                with timers.region(part.name):
                    part.work()
    step = CUDATimer()
    with step:
        for _ in range(STEPS):
            _run(parts)
    return Column(
        name=name,
        phases_ns=tuple(
            None if timing.total_ns is None else timing.total_ns // STEPS
            for timing in timers.read()
        ),
        step_ns=(step.read().total_ns or 0) // STEPS,
    )


def graphed(name: str, phases: Sequence[AnyPhase]) -> Column:
    """Replayed: a graph of each phase, many times on end, and one of the step, as it is run."""
    parts = list(parts_of(phases))
    _run(parts)
    return Column(
        name=name,
        phases_ns=tuple(
            None if part.empty else _replay_ns(_repeated(part), 1) // CALLS for part in parts
        ),
        step_ns=_replay_ns(lambda: _run(parts), STEPS),
    )


def _run(parts: Sequence[Phase]) -> None:
    for part in parts:
        part.work()


def _repeated(part: Phase) -> Callable[[], None]:
    def work() -> None:
        for _ in range(CALLS):
            part.work()

    return work


def _replay_ns(work: Callable[[], None], on_end: int) -> int:
    """Of one replay among so many on end: the median of some."""
    replay = captured(work)
    replay()
    timers = [CUDATimer() for _ in range(STEPS)]
    for timer in timers:
        with timer:
            for _ in range(on_end):
                replay()
    return round(median(timer.read().total_ns or 0 for timer in timers) / on_end)
