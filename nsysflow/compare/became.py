"""How a kernel, a copy or a wait changed, in a word."""

from dataclasses import dataclass
from math import log
from typing import Final, Literal, TypeAlias

from nsysflow.compare.sides import Series, Side

Status: TypeAlias = Literal[
    "new",
    "gone",
    "called more often",
    "called less often",
    "slower",
    "faster",
    "less overlapped",
    "more overlapped",
    "longer",
    "shorter",
    "same",
]
"""How it changed. Only waits are called longer or shorter."""

SAME_PCT: Final = 1.0
"""Smaller changes count as none: GPU clocks vary as much."""

_FAR: Final = 1e9
"""Stands for the ratio of something to nothing."""


@dataclass(frozen=True)
class Total:
    """What something took on one side.

    Attributes:
        ns: its part of a step.
        count: how often it ran per step.
        each_ns: how long each took, overlapped or not; 0 where it did not run.
        exposed: the share of that time that is its part of the step.
    """

    ns: float
    count: float
    each_ns: float
    exposed: float

    @classmethod
    def of(cls, series: Series, side: Side) -> "Total":
        """What `series` sums to in a step of a side."""
        ns, duration_ns, count = (
            sum(map(sum, figure)) for figure in (series.ns, series.duration_ns, series.count)
        )
        return cls(
            ns=ns / side.steps,
            count=count / side.steps,
            each_ns=duration_ns / count if count else 0.0,
            exposed=ns / duration_ns if duration_ns else 0.0,
        )


def of_wait(base: Total, new: Total) -> Status:
    """How idle time changed."""
    if base.ns == new.ns:
        return "same"
    if not base.ns or not new.ns:
        return "gone" if base.ns else "new"
    if abs(new.ns / base.ns - 1) * 100 <= SAME_PCT:
        return "same"
    return "longer" if new.ns > base.ns else "shorter"


def of_operation(base: Total, new: Total) -> Status:
    """How a kernel or a copy changed: the factor that changed its part of the step most."""
    if not base.count or not new.count:
        return "new" if new.count else "gone" if base.count else "same"
    factors: dict[tuple[Status, Status], float] = {
        ("called more often", "called less often"): new.count / base.count,
        ("slower", "faster"): _ratio(base.each_ns, new.each_ns),
        ("less overlapped", "more overlapped"): _ratio(base.exposed, new.exposed),
    }
    (more, less), factor = max(factors.items(), key=lambda each: abs(log(each[1])))
    if abs(factor - 1) * 100 <= SAME_PCT:
        return "same"
    return more if factor > 1 else less


def _ratio(base: float, new: float) -> float:
    """`new` as a multiple of `base`."""
    if base and new:
        return new / base
    return 1.0 if base == new else _FAR if new else 1 / _FAR
