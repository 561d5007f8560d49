"""What a program took before, and whether that can be compared with what it takes now."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nsysflow.base.errors import CheckError
from nsysflow.budgets.figures import Figure, figures_of
from nsysflow.compare.captures import Capture
from nsysflow.compare.comparable import obstacles
from nsysflow.compare.typical import typical


@dataclass(frozen=True, kw_only=True)
class Known:
    """A figure as it was.

    Attributes:
        value: the typical one, in the figure's unit.
        low: the lower end of its interval; None where it is not known.
        high: the upper end.
        runs: a value for each step of each capture, or each capture's median alone.
        has_steps: whether it is each step.
    """

    value: float
    low: float | None
    high: float | None
    runs: Sequence[Sequence[float]]
    has_steps: bool


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """What budgets compare with.

    Attributes:
        name: where it is from.
        known: a figure as it was; None where it has none of that name.
        again: what to type to write the file anew; empty where it is of captures.
    """

    name: str
    known: Callable[[Figure], Known | None]
    again: str = ""


def baseline_of(captures: Sequence[Capture]) -> Baseline:
    """Captures as a baseline."""
    figures = figures_of(captures)

    def known(figure: Figure) -> Known | None:
        return known_of(figures[figure.name], captures) if figure.name in figures else None

    return Baseline(name=names_of(captures), known=known)


def known_of(figure: Figure, captures: Sequence[Capture]) -> Known:
    """A figure of captures."""
    runs = [figure.values(each) for each in captures]
    found = typical(runs)
    return Known(value=found.value, low=found.low, high=found.high, runs=runs, has_steps=True)


def names_of(captures: Sequence[Capture]) -> str:
    """What to call several captures."""
    return ", ".join(each.name for each in captures)


def refuse_unlike(base: Sequence[Capture], new: Sequence[Capture]) -> None:
    """Refuse to take captures together that differ in GPU, ranks, precision, or as programs.

    Raises:
        CheckError: they do.
    """
    found = obstacles(base, new) if base and new else []
    if found:
        seen = f"{names_of(base)} and {names_of(new)} cannot be judged together: {'; '.join(found)}"
        raise CheckError(seen, "Record both in the same way")
