"""Gradients that `torch.autograd.grad` computes in one call after the other, where one call gives
several of them: a part of `backward-per-loss`.

Such passes add nothing to gradients that are there. They are told by being the same from end to
end, and by more products than one pass has for those of the forward pass before them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import polars as pl

from nsysflow.analysis.findings.kernels import MATRIX_CLASSES
from nsysflow.analysis.frames.columns import matching

FEWEST: Final = 3
"""So many passes that are the same come from one call after the other."""

PRODUCTS: Final = 2
"""A pass has so many products for each of the forward pass at most: the gradients of two
factors."""

PARTS: Final = r"(?i)split_?k_?(?:reduce|kernel)"
"""Kernels that only add up parts of a product."""


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Kernels in a row of one step, stream and thread, all of the backward pass or none.

    Attributes:
        step: the step, on a stream.
        backward: whether they are of the backward pass.
        first: the first kernel, a row.
        keys: names and grids of all kernels.
        products: how many of them are products.
    """

    step: tuple[int, int]
    backward: bool
    first: int
    keys: tuple[int, ...]
    products: int

    @property
    def rows(self) -> range:
        """The kernels."""
        return range(self.first, self.first + len(self.keys))


@dataclass(frozen=True, kw_only=True)
class SamePasses:
    """Backward passes in a row that are the same.

    Attributes:
        passes: all of them, the first one too.
        share: that of all but the first, of what was launched for them and before them.
        differentiating: the kernels of the passes behind them that differentiate them again.
    """

    passes: tuple[Stretch, ...]
    share: float
    differentiating: tuple[int, ...]

    @property
    def repeated(self) -> list[int]:
        """The kernels of all but the first."""
        return [row for one in self.passes[1:] for row in one.rows]

    @property
    def differentiated_again(self) -> list[int]:
        """As many of the kernels that differentiate them as is their share, evenly spread."""
        return [
            row
            for at, row in enumerate(self.differentiating)
            if int((at + 1) * self.share) > int(at * self.share)
        ]


def same_passes(kernels: pl.DataFrame) -> list[SamePasses]:
    """The rows of passes that are the same.

    Args:
        kernels: stream by stream in order: `lane`, `step`, `backward`, `thread_no` (that launched
            it), `class`, `name` and `key`, the same for kernels of one name and shape.
    """
    return [
        same
        for _, step in groupby(_stretches(kernels), key=lambda one: one.step)
        for same in _of_step(list(step))
    ]


def _of_step(stretches: list[Stretch]) -> Iterator[SamePasses]:
    forward: list[Stretch] = []
    parts = [(key, list(part)) for key, part in groupby(stretches, key=lambda one: one.backward)]
    for at, (backward, part) in enumerate(parts):
        if not backward:
            forward = part
            continue
        same = [one for one in part if one.keys == part[0].keys]
        products = sum(one.products for one in same)
        before = sum(one.products for one in forward)
        if len(same) < FEWEST or not before or products <= PRODUCTS * before:
            continue
        launched = sum(len(one.keys) for one in (*forward, *part))
        behind = [one for key, later in parts[at + 1 :] if key for one in later]
        yield SamePasses(
            passes=tuple(same),
            share=sum(len(one.keys) for one in same[1:]) / launched,
            differentiating=tuple(
                row for one in behind if one.products >= PRODUCTS * products for row in one.rows
            ),
        )


def _stretches(kernels: pl.DataFrame) -> Iterator[Stretch]:
    """The stretches with products, in order."""
    place = pl.struct("lane", "step", "backward", "thread_no").rle_id().alias("stretch")
    whole = pl.col("class").is_in([*MATRIX_CLASSES]) & ~pl.lit(matching(kernels["name"], PARTS))
    rows = (
        kernels.drop("index", strict=False)
        .with_row_index()
        .with_columns(place, whole.alias("whole"))
    )
    judged = rows.drop_nulls(["step", "backward"])
    stretches = judged.group_by("stretch", maintain_order=True).agg(
        pl.col("lane", "step", "backward", "index").first(), "key", pl.col("whole").sum()
    )
    for _, lane, step, backward, first, keys, products in stretches.filter(
        pl.col("whole") > 0
    ).iter_rows():
        yield Stretch(
            step=(lane, step),
            backward=backward,
            first=first,
            keys=tuple(keys),
            products=products,
        )
