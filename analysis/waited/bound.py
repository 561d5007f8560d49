"""What bounds a time (stub until the branch `waited` is finished)."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Bound:
    """The largest parts."""

    names: tuple[str, ...]
    pct: float


def bound_of(parts: Mapping[str, int]) -> Bound:
    """The largest parts."""
    total = sum(parts.values())
    ranked = sorted(parts.items(), key=lambda item: -item[1])
    top = ranked[0][1]
    if not total or 10 * top < total:
        return Bound((), 0.0)
    return Bound(tuple(n for n, ns in ranked[:3] if 1.2 * ns >= top), 100 * top / total)
