"""A step as phases, work captured as a CUDA graph, and the table of a step: how accurate it is, how
long each phase takes, what a graph gains.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from statistics import median
from typing import Any, Final

import torch

from nsysflow.kernels.timer import CUDATimer, CUDATimerCollection
from nsysflow.runtime.regions import region
from nsysflow.workloads.common.accuracy import Comparison


class WorkloadRegion(StrEnum):
    """Names of ranges that only the workloads use, in addition to `Region`."""

    ENCODER = "encoder"
    RNN = "rnn"
    DECODER = "decoder"
    COMPUTE_ADVANTAGE = "compute_advantage"
    COMPUTE_PRIO = "compute_prio"
    SELECT_AND_COPY = "train_select_and_copy"
    REPLAY = "replay"


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of a step.

    Attributes:
        name: the name of its range.
        work: runs it.
        empty: whether it launches nothing, because another phase does its work too.
    """

    name: str
    work: Callable[[], None]
    empty: bool = False

    def __call__(self) -> None:
        """Run it in its range."""
        with region(self.name):
            self.work()


@dataclass(frozen=True, kw_only=True)
class Phases:
    """Several phases in a row, inside one range."""

    name: str
    parts: tuple[Phase, ...]

    def __call__(self) -> None:
        """Run the parts, each in its range."""
        with region(self.name):
            for part in self.parts:
                part()


AnyPhase = Phase | Phases


def parts_of(phases: Sequence[AnyPhase]) -> Iterator[Phase]:
    """The phases that contain no others, in order."""
    for phase in phases:
        if isinstance(phase, Phases):
            yield from phase.parts
        else:
            yield phase


def captured(work: Callable[[], None]) -> Callable[[], None]:
    """A function that replays `work` as a CUDA graph, with one launch.

    Args:
        work: launches kernels on static tensors. It must not allocate memory that outlives it, and
            must not wait. It runs once before the capture, because code loads lazily.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


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


@dataclass(frozen=True, kw_only=True)
class Table:
    """The comparisons and times of a step.

    Attributes:
        compared: the variant's results, compared with float64's.
        phases: the names of the phases, in order.
        ends: the phases up to which the first part of a step was timed.
        columns: the ways to run the step; shares are those of the last.
    """

    compared: tuple[Comparison, ...]
    phases: tuple[str, ...]
    ends: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def wrong(self) -> tuple[str, ...]:
        """The names of the results that failed."""
        return tuple(row.what for row in self.compared if not row.passed)

    @property
    def record(self) -> dict[str, Any]:
        """The table as JSON, times in ns."""
        compared = [asdict(row) | {"passed": row.passed} for row in self.compared]
        columns = [
            {
                "name": column.name,
                "phases_ns": dict(zip(self.phases, column.phases_ns, strict=True)),
                "sum_ns": column.sum_ns,
                "to_the_end_of_ns": dict(zip(self.ends, column.begun_ns, strict=True)),
                "step_ns": column.step_ns,
            }
            for column in self.columns
        ]
        return {"compared": compared, "columns": columns}

    def __str__(self) -> str:
        return "\n".join([*self._comparison(), *self._timing()])

    def _comparison(self) -> list[str]:
        if not self.compared:
            return []
        rows = [
            f"{row.what:<24}{row.torch_error:>10.1e}{row.error:>10.1e}"
            f"  {'PASS' if row.passed else 'FAIL'}"
            for row in self.compared
        ]
        name = self.columns[1].name
        return [f"{'distance from float64':<24}{'torch':>10}{name:>10}", *rows, ""]

    def _timing(self) -> list[str]:
        last = self.columns[-1]
        head = f"{'us':<24}" + "".join(f"{column.name:>10}" for column in self.columns)
        rows = [
            _row(name, [column.phases_ns[place] for column in self.columns])
            + f"{(last.phases_ns[place] or 0) / last.sum_ns:>8.1%}"
            for place, name in enumerate(self.phases)
        ]
        total = _row("sum of phases", [column.sum_ns for column in self.columns])
        begun = [
            _row(f"to the end of {name}", [column.begun_ns[place] for column in self.columns])
            for place, name in enumerate(self.ends)
        ]
        step = _row("step, measured", [column.step_ns for column in self.columns])
        gains = [
            f"{last.name} against {column.name}: {column.step_ns / last.step_ns:.1f} times"
            for column in self.columns[:-1]
        ]
        return [f"{head}{'share':>8}", *rows, total, *begun, step, *gains]


def table_of(
    compared: Sequence[Comparison], ways: Mapping[str, Sequence[AnyPhase]], *, graph: str | None
) -> Table:
    """Time each way eagerly, and one of them as a graph too.

    Args:
        compared: the comparisons to show.
        ways: the phases of each way by its name; the phases are the same for all.
        graph: which way to capture as a graph; None for none.
    """
    ends = _ends(ways)
    columns = [eager(name, phases, ends) for name, phases in ways.items()]
    if graph is not None:
        columns.append(graphed("graph", ways[graph], ends))
    names = next(iter(ways.values()))
    return Table(
        compared=tuple(compared),
        phases=tuple(part.name for part in parts_of(names)),
        ends=ends,
        columns=tuple(columns),
    )


def _ends(ways: Mapping[str, Sequence[AnyPhase]]) -> tuple[str, ...]:
    """The phases that launch something in every way, without the first and the last."""
    idle = {
        phase.name
        for phases in ways.values()
        for phase in phases
        if all(part.empty for part in parts_of([phase]))
    }
    names = [phase.name for phase in next(iter(ways.values())) if phase.name not in idle]
    return tuple(names[1:-1])


def _row(name: str, times_ns: Sequence[int | None]) -> str:
    cells = ("-" if time_ns is None else f"{time_ns / 1000:.1f}" for time_ns in times_ns)
    return f"{name:<24}" + "".join(f"{cell:>10}" for cell in cells)
