"""How long the phases of a step take on the GPU, separately and together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from nsysflow.kernels.timer import CUDATimer, CUDATimerCollection
from nsysflow.workloads.common.cuda_graphs import captured
from nsysflow.workloads.common.phases import AnyPhase, Phase, parts_of

WARM_UPS: Final = 3
STEPS: Final = 20
"""How many eager steps, and how many replays of a graph, are timed."""
CALLS: Final = 20
"""How often a phase is in the graph that times it, so that the cost of a replay is spread."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """The times of a step in one way of running it, in ns.

    Attributes:
        name: the name of the way.
        phases_ns: the time of each phase alone; None if it launches nothing.
        begun_ns: from the start of the step to the end of some phases, measured rather than summed.
        step_ns: the whole step, measured rather than summed.
    """

    name: str
    phases_ns: tuple[int | None, ...]
    begun_ns: tuple[int, ...]
    step_ns: int

    @property
    def sum_ns(self) -> int:
        """The sum of the phases."""
        return sum(phase_ns or 0 for phase_ns in self.phases_ns)


def eager(name: str, phases: Sequence[AnyPhase], ends: Sequence[str]) -> Column:
    """Times of eager launches, from event to event: they include the GPU's waits for the host.

    Args:
        name: the name of this way.
        phases: the phases of a step.
        ends: the phases up to which the first part of a step is timed too.
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
    """Times of graph replays: one graph per phase with many calls, and one graph of the step.

    Args:
        name: the name of this way.
        phases: the phases of a step.
        ends: the phases up to which the first part of a step is captured too.
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
    """The time of all parts as one graph."""
    return _replay_ns(lambda: _run(parts), STEPS)


def _run(parts: Sequence[Phase]) -> None:
    for part in parts:
        part.work()


def _repeated(part: Phase) -> Callable[[], None]:
    def work() -> None:
        for _ in range(CALLS):
            part.work()

    return work


def _replay_ns(work: Callable[[], None], in_a_row: int) -> int:
    """The median time of one replay when `in_a_row` replays follow each other."""
    replay = captured(work)
    replay()
    timers = [CUDATimer() for _ in range(STEPS)]
    for timer in timers:
        with timer:
            for _ in range(in_a_row):
                replay()
    return round(median(timer.read().total_ns or 0 for timer in timers) / in_a_row)
