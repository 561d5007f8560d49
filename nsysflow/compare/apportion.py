"""Round the parts of a sum so that they still sum to it."""

from collections.abc import Hashable, Mapping
from fractions import Fraction
from math import floor
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def apportioned(parts: Mapping[K, Fraction], total: int) -> dict[K, int]:
    """The parts as whole numbers that sum to `total`, by the largest remainder.

    Args:
        parts: exact; their sum is less than 1 away from `total`.
        total: what they sum to. Of equal remainders the first gets more.
    """
    found = {key: floor(part) for key, part in parts.items()}
    missing = total - sum(found.values())
    by_remainder = sorted(parts, key=lambda key: floor(parts[key]) - parts[key])
    for key in by_remainder[:missing]:
        found[key] += 1
    return found
