"""The figures of a capture that a budget can limit, by name: what each step took (spec §20)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.base.errors import CheckError
from nsysflow.compare.captures import Capture, PartName, Row, Track

Unit: TypeAlias = Literal["ns", "pct", "count"]
"""What values are in; names say ms where values are in ns."""

_IDLE: Final[Sequence[PartName]] = ("idle",)
_KERNELS: Final[Sequence[PartName]] = ("compute", "communication")
_BUSY: Final[Sequence[PartName]] = (*_KERNELS, "copies")
_PARTS: Final[Sequence[PartName]] = (*_BUSY, *_IDLE)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Something measured in each step: a sum over some of its rows.

    Attributes:
        name: such as `step_ms`; times are named in ms.
        unit: of its values.
        column: what is summed: the part of the step, how long operations ran, or how many.
        picks: which rows.
        of_step: whether it is of the slowest rank's step, even where that has no such row.
    """

    name: str
    unit: Unit
    picks: Callable[[Row], bool]
    column: Literal["ns", "duration_ns", "count"] = "ns"
    of_step: bool = False

    def track(self, capture: Capture) -> Track:
        """The slowest rank; where that has no such kernel or phase, the slowest that has one."""
        ranks = ranks_of(capture)
        if self.of_step:
            return ranks[0]
        return next((rank for rank in ranks if any(map(self.picks, rank.rows))), ranks[0])

    def rows(self, capture: Capture) -> list[Row]:
        """The rows that it sums."""
        return [row for row in self.track(capture).rows if self.picks(row)]

    def values(self, capture: Capture) -> list[float]:
        """Its value in each step: ns, percent of the step, or how many."""
        steps_ns = self.track(capture).duration_ns
        columns = [getattr(row, self.column) for row in self.rows(capture)]
        sums = [sum(step) for step in zip(*columns, strict=True)] or [0] * len(steps_ns)
        if self.unit != "pct":
            return [float(each) for each in sums]
        pairs = zip(sums, steps_ns, strict=True)
        return [100 * part / step if step else 0.0 for part, step in pairs]


def ranks_of(capture: Capture) -> list[Track]:
    """The processes and GPUs that have steps, the slowest first.

    Raises:
        CheckError: none has.
    """
    ranks = [track for track in capture.tracks if track.has_steps]
    if not ranks:
        seen = f"{capture.name} has no steps after start-up, so there is no step to judge"
        advice = (
            "Name the NVTX range that is one step, and the report itself instead of report.json"
        )
        raise CheckError(seen, advice, "nsysflow check REPORT --step NAME")
    return sorted(ranks, key=lambda track: track.mean_ns, reverse=True)


def figures_of(captures: Sequence[Capture]) -> Mapping[str, Figure]:
    """All figures of some captures of one program, by name.

    Raises:
        CheckError: a capture has no steps.
    """
    rows = [row for each in captures for rank in ranks_of(each) for row in rank.rows]
    found = [*_of_steps(), *_of_phases(rows), *_of_classes(rows), *_of_kernels(rows)]
    return {figure.name: figure for figure in found}


def _of_steps() -> Iterator[Figure]:
    yield Figure(name="step_ms", unit="ns", picks=lambda _: True, of_step=True)
    for part in _PARTS:
        picks = _picks("part", part)
        yield Figure(name=f"{part}_ms", unit="ns", picks=picks, of_step=True)
        yield Figure(name=f"{part}_pct", unit="pct", picks=picks, of_step=True)
    for cause in CAUSES:
        picks = _picks("kind", cause, part=_IDLE)
        yield Figure(name=f"{cause}.idle_behind_ms", unit="ns", picks=picks, of_step=True)
        yield Figure(name=f"{cause}.idle_behind_pct", unit="pct", picks=picks, of_step=True)


def _of_phases(rows: Sequence[Row]) -> Iterator[Figure]:
    for phase in sorted({outer for path in {row.phase for row in rows} for outer in _outer(path)}):
        name = f"phase:{phase}"
        for quantity, parts in (("step", _PARTS), ("busy", _BUSY), ("idle", _IDLE)):
            yield Figure(name=f"{name}.{quantity}_ms", unit="ns", picks=_inside(phase, parts))
        picks = _inside(phase, _KERNELS)
        yield Figure(name=f"{name}.kernel_ms", unit="ns", column="duration_ns", picks=picks)


def _of_classes(rows: Sequence[Row]) -> Iterator[Figure]:
    for kind in sorted({row.kind for row in rows if row.part in _KERNELS}):
        picks = _picks("kind", kind, part=_KERNELS)
        yield Figure(name=f"class:{kind}.ms", unit="ns", column="duration_ns", picks=picks)


def _of_kernels(rows: Sequence[Row]) -> Iterator[Figure]:
    for name in sorted({row.short_name for row in rows if row.part in _KERNELS}):
        picks = _picks("short_name", name, part=_KERNELS)
        yield Figure(name=f"kernel:{name}.ms", unit="ns", column="duration_ns", picks=picks)
        yield Figure(name=f"kernel:{name}.count", unit="count", column="count", picks=picks)


def _outer(path: str) -> Iterator[str]:
    """A phase and those around it; nothing outside all ranges."""
    names = path.split("/") if path else []
    for depth in range(1, len(names) + 1):
        yield "/".join(names[:depth])


def _picks(column: str, value: str, part: Sequence[PartName] = _PARTS) -> Callable[[Row], bool]:
    return lambda row: row.part in part and getattr(row, column) == value


def _inside(phase: str, parts: Sequence[PartName]) -> Callable[[Row], bool]:
    return lambda row: row.part in parts and row.inside(phase)
