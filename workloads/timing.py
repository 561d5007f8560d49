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
        begun_ns: from the step's begin to the end of some phases, measured and not added up.
        step_ns: likewise, of the whole step.
    """

    name: str
    phases_ns: tuple[int | None, ...]
    begun_ns: tuple[int, ...]
    step_ns: int

    @property
    def sum_ns(self) -> int:
        """Of the phases."""
        return sum(phase_ns or 0 for phase_ns in self.phases_ns)


def eager(name: str, phases: Sequence[AnyPhase], ends: Sequence[str]) -> Column:
    """Launched one by one: from event to event, so that a GPU that waits for the host is in it.

    Args:
        name: of this way.
        phases: of a step.
        ends: phases up to which a step's beginning is measured too.
    """
    parts = list(parts_of(phases))
    for _ in range(WARM_UPS):
        _run(parts)
    timers = CUDATimerCollection([part.name for part in parts])
    for _ in range(STEPS):
        for part in parts:
            if not part.empty:
                with timers.region(part.name):
                    part.work()
    return Column(
        name=name,
        phases_ns=tuple(
            None if timing.total_ns is None else timing.total_ns // STEPS
            for timing in timers.read()
        ),
        begun_ns=tuple(_eager_ns(_until(phases, end)) for end in ends),
        step_ns=_eager_ns(parts),
    )


def graphed(name: str, phases: Sequence[AnyPhase], ends: Sequence[str]) -> Column:
    """Replayed: a graph of each phase, many times on end, and one of the step, as it is run.

    Args:
        name: of this way.
        phases: of a step.
        ends: phases up to which a step's beginning is a graph too.
    """
    parts = list(parts_of(phases))
    _run(parts)
    return Column(
        name=name,
        phases_ns=tuple(
            None if part.empty else _replay_ns(_repeated(part), 1) // CALLS for part in parts
        ),
        begun_ns=tuple(_whole_ns(_until(phases, end)) for end in ends),
        step_ns=_whole_ns(parts),
    )


def _until(phases: Sequence[AnyPhase], end: str) -> list[Phase]:
    count = [phase.name for phase in phases].index(end) + 1
    return list(parts_of(phases[:count]))


def _eager_ns(parts: Sequence[Phase]) -> int:
    timer = CUDATimer()
    with timer:
        for _ in range(STEPS):
            _run(parts)
    return (timer.read().total_ns or 0) // STEPS


def _whole_ns(parts: Sequence[Phase]) -> int:
    """As one graph."""
    return _replay_ns(lambda: _run(parts), STEPS)


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
