"""The table of a step: how accurate it is, how long each phase takes, what a graph gains."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nsysflow.workloads.common.accuracy import Comparison
from nsysflow.workloads.common.phases import AnyPhase, parts_of
from nsysflow.workloads.common.timing import Column, eager, graphed


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
