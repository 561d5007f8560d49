"""What each budget limits: its figure by name, its limit in the figure's unit."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nsysflow.base.errors import UnknownName, WrongBudget
from nsysflow.base.names import near_or_all
from nsysflow.budgets.figures import Figure
from nsysflow.budgets.grammar import FINDING, Budget

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
    limits = [_limit(each, figures) for each in budgets]
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
    for each in budgets:
        if each.rule not in rules:
            seen = f"{each.quoted}: there is no finding {each.rule!r}"
            raise UnknownName(seen, near_or_all(str(each.rule), rules, where="nsysflow explain"))
        _refuse_second(first.setdefault(each.name, each), each)


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
    return [each for each in figures if each.startswith(_PHASE) and each.endswith(f"/{last}")]
