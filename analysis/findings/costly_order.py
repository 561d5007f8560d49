"""Where a costly line stands in the plan: behind what says why it is costly, before what names no
place."""

from collections.abc import Iterator, Sequence
from typing import Final

from nsysflow.analysis.findings.finding import Valued, in_function

COSTLY: Final = "costly-line"

OF_ALL_KERNELS: Final = ("unfused-elementwise", "layout-transpose", "fp32-matmul", "tiny-kernels")
"""These may be about kernels of the whole program. A line is a place to begin."""

GOOD_PART: Final = 1 / 3
"""What saves this part of another finding may stand before it: below, the other matters more."""

TOLD: Final = 0.5
"""A finding that saves this part of what a costly line takes says why it is costly."""


def without_told_lines(valued: Sequence[Valued]) -> Iterator[Valued]:
    """The findings without a costly line in a function of which another one says why. Where most
    launches are at that line, their number is why."""
    for one in valued:
        function = in_function(one.finding.source)
        told = (
            other.finding.rule == "launch-bound" or other.alone_ns >= TOLD * one.alone_ns
            for other in valued
            if other.finding.rule != COSTLY and in_function(other.finding.source) == function
        )
        if one.finding.rule != COSTLY or not any(told):
            yield one


def with_costly_line_early(found: Sequence[Valued]) -> list[Valued]:
    """The findings; a costly line stands before those of all kernels that name no place, unless
    they save far more. It stands behind those of some kernels that save half as much."""
    costly = next((one for one in found if one.finding.rule == COSTLY), None)
    if costly is None:
        return [*found]
    others = [one for one in found if one is not costly]
    early = (
        at
        for at, one in enumerate(others)
        if one.finding.rule in OF_ALL_KERNELS
        and not one.finding.source
        and costly.alone_ns >= GOOD_PART * one.alone_ns
    )
    told = (at for at, one in enumerate(others, start=1) if _tells(one, costly))
    at = max(min(next(early, len(others)), found.index(costly)), *told, 0)
    return [*others[:at], costly, *others[at:]]


def _tells(one: Valued, costly: Valued) -> bool:
    """Whether a finding may say why the line is costly."""
    of_some = one.finding.makes_kernels_faster and one.finding.rule not in OF_ALL_KERNELS
    return of_some and one.alone_ns >= TOLD * costly.alone_ns
