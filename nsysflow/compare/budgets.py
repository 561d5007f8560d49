"""Budgets as they are typed, the figures that they limit, and their limits (spec §20)."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isinf
from typing import Final, Literal, NoReturn, TypeAlias

from nsysflow.analysis.causes import CAUSES
from nsysflow.base.errors import CheckError, UnknownName, WrongBudget, near_or_all
from nsysflow.compare.captures import Capture, PartName, Row, Track

FINDING: Final = "finding:"
"""What the name of a budget on a finding begins with."""

_NUMBER: Final = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_BASELINE: Final = rf"(?:(?P<before>{_NUMBER})\s*\*\s*)?baseline(?:\s*\*\s*(?P<after>{_NUMBER}))?"
_LIMIT: Final = re.compile(
    rf"\s*(?P<name>.+?)\s*(?<![=<>])(?P<op><=|<)\s*(?:(?P<number>{_NUMBER})|{_BASELINE})\s*"
)
_NONE: Final = re.compile(rf"\s*{FINDING}(?P<rule>[^=]+?)\s*=\s*none\s*")


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A largest value for a figure, or a finding that must not be there.

    Attributes:
        text: as it was typed.
        where: the file and line that it stands in; empty if it was typed.
        name: of the figure, in the unit that its ending says; `finding:RULE` of a finding.
        strict: whether the limit itself is too much.
        limit: in the unit of the name, or a factor of the baseline; 0 for a finding.
        of_baseline: whether the limit is such a factor.
    """

    text: str
    where: str = ""
    name: str
    strict: bool = False
    limit: float = 0.0
    of_baseline: bool = False

    @property
    def rule(self) -> str | None:
        """The kind of finding that must not be there; None where a figure has a limit."""
        return self.name.removeprefix(FINDING) if self.name.startswith(FINDING) else None

    @property
    def quoted(self) -> str:
        """What to call it in a message."""
        return f"{self.text!r} in {self.where}" if self.where else f"{self.text!r}"


def budget(text: str, where: str = "") -> Budget:
    """A budget from its text.

    Args:
        text: what was typed.
        where: the file and line that it stands in; empty if it was typed.

    Raises:
        WrongBudget: it is no budget.
    """
    text = text.strip()
    as_typed = Budget(text=text, where=where, name="")
    if text.startswith(FINDING):
        return _without_finding(as_typed)
    parts = _LIMIT.fullmatch(text)
    if parts is None or isinf(float(parts["number"] or 0)):
        _refuse(as_typed)
    factors = [float(factor) for factor in parts.group("before", "after") if factor is not None]
    number = parts["number"]
    if len(factors) > 1 or 0 in factors or inf in factors:
        seen = f"{as_typed.quoted} takes one factor of the baseline, above 0"
        raise WrongBudget(seen, "Such as step_ms<=1.05*baseline")
    return Budget(
        text=text,
        where=where,
        name=parts["name"],
        strict=parts["op"] == "<",
        limit=float(number) if number else (factors or [1.0])[0],
        of_baseline=number is None,
    )


def _without_finding(typed: Budget) -> Budget:
    parts = _NONE.fullmatch(typed.text)
    if parts is None:
        seen = f"{typed.quoted} is not finding:RULE=none"
        raise WrongBudget(seen, "A finding is there or not; such as finding:sync-in-loop=none")
    return Budget(text=typed.text, where=typed.where, name=f"{FINDING}{parts['rule']}")


def _refuse(typed: Budget) -> NoReturn:
    if re.search(r">|==|=<", typed.text):
        advice = "A budget says how much is allowed, so it takes <= or <"
    elif re.search(rf"<=?\s*{_NUMBER}\s*[^\s\d.*]+$", typed.text):
        advice = "The unit is in the name: step_ms<=5 or step_us<=5000; a limit is a number"
    else:
        advice = (
            "NAME is a figure such as step_ms; LIMIT is a number, baseline, or a factor of it as in"
            " 1.05*baseline"
        )
    raise WrongBudget(f"{typed.quoted} is not NAME<=LIMIT or NAME<LIMIT", advice)


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
        """Its value in each step: ns, percent of the mean step, or how many."""
        track = self.track(capture)
        steps_ns = track.duration_ns
        columns = [getattr(row, self.column) for row in self.rows(capture)]
        sums = [sum(step) for step in zip(*columns, strict=True)] or [0] * len(steps_ns)
        if self.unit != "pct":
            return [float(total) for total in sums]
        mean_ns = track.mean_ns
        return [100 * part / mean_ns if mean_ns else 0.0 for part in sums]


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
    rows = [row for capture in captures for rank in ranks_of(capture) for row in rank.rows]
    figures = [*_of_steps(), *_of_phases(rows), *_of_classes(rows), *_of_kernels(rows)]
    return {figure.name: figure for figure in figures}


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


_NS: Final = {"ms": 1_000_000, "us": 1_000, "ns": 1}
_PHASE: Final = "phase:"


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The largest value of a figure.

    Attributes:
        budget: which budget says so.
        figure: what is limited.
        most: in the figure's unit, or a factor of the baseline.
    """

    budget: Budget
    figure: Figure
    most: float


def limits_of(budgets: Sequence[Budget], figures: Mapping[str, Figure]) -> list[Limit]:
    """The budgets on figures, each with its figure.

    Raises:
        UnknownName: there is no such figure.
        WrongBudget: a limit can never be crossed or kept, or two are of the same figure.
    """
    limits = [_limit(budget, figures) for budget in budgets]
    first: dict[tuple[str, bool], Budget] = {}
    for limit in limits:
        key = limit.figure.name, limit.budget.of_baseline
        _refuse_second(first.setdefault(key, limit.budget), limit.budget)
    return limits


def refuse_rules(budgets: Sequence[Budget], rules: Collection[str]) -> None:
    """Refuse what is no budget on a finding.

    Args:
        budgets: these.
        rules: the kinds of findings that there are.

    Raises:
        UnknownName: there is no such kind.
        WrongBudget: two are of the same kind.
    """
    first: dict[str, Budget] = {}
    for budget in budgets:
        if budget.rule not in rules:
            seen = f"{budget.quoted}: there is no finding {budget.rule!r}"
            raise UnknownName(seen, near_or_all(str(budget.rule), rules, where="nsysflow explain"))
        _refuse_second(first.setdefault(budget.name, budget), budget)


def _refuse_second(first: Budget, second: Budget) -> None:
    """Of two limits of one figure, one never counts."""
    if first is not second:
        seen = f"{first.quoted} and {second.quoted} limit the same figure"
        raise WrongBudget(seen, "Only one of them can count: remove the other")


def _limit(budget: Budget, figures: Mapping[str, Figure]) -> Limit:
    figure, scale = _figure(budget, figures)
    if budget.of_baseline:
        return Limit(budget=budget, figure=figure, most=budget.limit)
    if figure.unit == "pct" and budget.limit >= 100:
        seen = f"{budget.quoted} is always kept: {budget.name} is at most 100"
        raise WrongBudget(seen, "Name a smaller limit, or remove it")
    if budget.strict and not budget.limit:
        seen = f"{budget.quoted} can never be kept: {budget.name} is at least 0"
        raise WrongBudget(seen, "Allow a little, or 0 itself with <=")
    return Limit(budget=budget, figure=figure, most=budget.limit * scale)


def _figure(budget: Budget, figures: Mapping[str, Figure]) -> tuple[Figure, int]:
    """The figure that a budget names, and how many of its unit are one of the name's."""
    name, scale = budget.name, 1
    stem, unit = name[:-2], name[-2:]
    if unit in _NS and stem.endswith(("_", ".")):
        name, scale = f"{stem}ms", _NS[unit]
    if name in figures:
        return figures[name], scale
    phases = _phases(name, figures)
    if len(phases) == 1:
        return figures[phases[0]], scale
    if phases:
        several = " or ".join(phases)
        raise UnknownName(f"{budget.quoted}: there are {len(phases)} such phases", f"Say {several}")
    seen = f"{budget.quoted}: this report has no figure {budget.name!r}"
    known = [*figures, f"{FINDING}RULE"]
    raise UnknownName(seen, near_or_all(name, known))


def _phases(name: str, figures: Mapping[str, Figure]) -> list[str]:
    """The figures of phases inside others that end so."""
    last = name.removeprefix(_PHASE)
    if last == name:
        return []
    return [name for name in figures if name.startswith(_PHASE) and name.endswith(f"/{last}")]
