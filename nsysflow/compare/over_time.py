"""More than two captures, one after the other: how the step changed from each to the next."""

from collections.abc import Sequence
from dataclasses import dataclass

from nsysflow.compare.captures import Capture
from nsysflow.compare.comparison import Comparison, compared


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One capture of a row.

    Attributes:
        capture: itself.
        since_first: what changed since the first one; None for the first.
        since_last: what changed since the one before; None for the first.
    """

    capture: Capture
    since_first: Comparison | None
    since_last: Comparison | None


def over_time(captures: Sequence[Capture]) -> list[Stage]:
    """Each capture, compared with the first and with the one before."""
    return [
        Stage(
            capture=capture,
            since_first=compared(captures[:1], [capture]) if at else None,
            since_last=compared(captures[at - 1 : at], [capture]) if at else None,
        )
        for at, capture in enumerate(captures)
    ]
