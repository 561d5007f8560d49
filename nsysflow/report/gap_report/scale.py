"""To which figure is a share of a step rounded, so that two captures give the same one?"""

from itertools import pairwise
from typing import Final

SCALE: Final = (1, 2, 5, 10, 20, 50, 100)
"""Shares of a step in percent. Neighbours are a factor of 2 to 2.5 apart: four times what host time
differs between captures of one program (docs/accuracy.md)."""

COARSE_SCALE: Final = (1, 10, 100)
"""The same for the sum of what is too small for a row of its own."""

LISTED_PER_MILLE: Final = 5
"""A row takes at least so much of a step."""

SURE_PER_MILLE: Final = 10
"""A row that takes less than this is listed only if its interval, too, is above the other limit:
else it would come and go from capture to capture."""


def rounded_pct(ns: float, step_ns: float, scale: tuple[int, ...] = SCALE) -> int:
    """The nearest figure of the scale, by ratio. A share in the middle of two takes the larger.

    Args:
        ns: the time.
        step_ns: the step that it is a part of.
        scale: the figures, in percent.
    """
    # whole and half ns: exact in these integers, which floats would not be
    share, whole = round(2 * ns) * 100, round(2 * step_ns)
    above = sum(share * share >= low * high * whole * whole for low, high in pairwise(scale))
    return scale[above]


def is_listed(ns: float, low_ns: float | None, step_ns: float) -> bool:
    """Whether a time has a row of its own.

    Args:
        ns: the time.
        low_ns: the lower end of its interval; None where it is not known.
        step_ns: the step that it is a part of.
    """
    at_least = ns if low_ns is None or 1000 * ns >= SURE_PER_MILLE * step_ns else low_ns
    return at_least > 0 and 1000 * at_least >= LISTED_PER_MILLE * step_ns
