"""Loops of passes through a model that is only run: no update tells a step (spec §8.26)."""

from typing import Final

import polars as pl

from nsysflow.analysis.steps.launched import Launched

CONTEXT: Final = 8
"""So many names in a row hardly come twice by chance."""

PASSES: Final = 20
"""Models have groups of layers, too, but no more than a dozen."""

PASSES_WITHOUT_LAYERS: Final = 50
"""No model has so many layers of one kind."""

DIFFERENT: Final = 100
"""A change is more than a hundredth of the kernels. Other passes of five programs differed by up to
0.7 %; what follows the last of a model's groups of layers is more of a group."""

SLIGHTLY_DIFFERENT: Final = 20
"""A larger change is more than this part of the kernels. Steps of a simulation that sampled its
field every twenty steps differed by 2.4 %."""

GROUPS: Final = 12
"""No model has more groups of layers. Where more stretches follow each other, each is a pass, and
what follows one now and then is not the model's head."""

CHANGES: Final = 2
"""One pass of another kind is two: it differs from the one before, and the next one from it. As a
cache grows, kernels change once for good."""

LAYERS: Final = 3
"""A pass repeats its layers so often or more."""


def contexts(launched: Launched) -> pl.DataFrame:
    """Per launch, what comes before it: `context`, the names that end with it, as a number, and
    `since`, how many launches ago these did so last.

    Args:
        launched: in order.
    """
    names = [pl.col("name").shift(back).alias(str(back)) for back in range(CONTEXT)]
    rows = launched.select(names).hash_rows().to_frame("context").with_row_index("row")
    row = pl.col("row").cast(pl.Int64)
    before = row.shift().over("context")
    since = pl.when(before >= CONTEXT - 1).then(row - before)
    return rows.select("context", since.alias("since"))


def are_passes(launched: Launched, places: pl.Series, length: int) -> bool:
    """Whether nearly equal stretches follow each other to the end, and are more than layers.

    Args:
        launched: in order.
        places: the rows where stretches begin.
        length: of most stretches, in launches.
    """
    if not ends_in_itself(launched, places):
        return False
    layers = _hold_layers(launched, places, length)
    if not layers and len(places) < PASSES_WITHOUT_LAYERS:
        return False
    changes = _changes(launched, places, DIFFERENT)
    seldom = (GROUPS + 1) * changes <= CHANGES * (len(places) - 1)
    slight = layers and seldom and _changes(launched, places, SLIGHTLY_DIFFERENT) <= CHANGES
    return changes <= CHANGES or slight


def ends_in_itself(launched: Launched, places: pl.Series) -> bool:
    """Whether the kernels from the last place on are, name by name, those with which the stretch
    before begins: what follows the last layer of a model is its head.

    Args:
        launched: in order.
        places: the rows where stretches begin.
    """
    before, last = int(places[-2]), int(places[-1])
    names = launched["name"].set(~launched["computes"], None)
    left, stretch = names[last:].drop_nulls(), names[before:last].drop_nulls()
    return left.equals(stretch[: len(left)])


def _hold_layers(launched: Launched, places: pl.Series, length: int) -> bool:
    """Whether half of what stretches launch comes again within them."""
    first, last = int(places[0]), int(places[-1])
    since = contexts(launched)["since"][first:last]
    return 2 * int((LAYERS * since <= length).sum()) >= last - first


def _changes(launched: Launched, places: pl.Series, different: int) -> int:
    """How many stretches differ from the one before in more than one of `different` kernels."""
    stretch = places.search_sorted(pl.int_range(len(launched), eager=True), side="right")
    own = pl.col("stretch").is_between(1, len(places) - 1)
    counts = (
        launched.select("name", "computes", stretch.cast(pl.Int64).alias("stretch"))
        .filter("computes", own)
        .group_by("stretch", "name")
        .agg(more=pl.len().cast(pl.Int64))
    )
    before = counts.with_columns(pl.col("stretch") + 1, -pl.col("more"))
    changes = (
        pl.concat([counts, before])
        .filter(own & (pl.col("stretch") > 1))
        .group_by("stretch", "name")
        .agg(pl.col("more").abs().sum().alias("both"), pl.col("more").sum().abs())
        .group_by("stretch")
        .agg(pl.col("both", "more").sum())
        .filter(different * pl.col("more") > pl.col("both"))
    )
    return len(changes)
