"""What tells steps where no update does: passes through a model that is only run (spec §8.26), and
rounds of loops in turn (spec §8.28)."""

from typing import Annotated, Final

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

LASTING: Final = 5
"""Kernels that are new, or gone, for fewer rounds than these make no other loop."""

ROUNDS: Final = pl.Schema(
    {
        "name": pl.UInt64(),
        "round": pl.Int64(),
        "gpu_ns": pl.Int64(),
        "before": pl.Int64(),
        "after": pl.Int64(),
    }
)
"""A row per kernel or graph and round that runs it; `before` and `after` are how many rounds ago it
ran last, and will run next, null where it did or will not."""
Rounds = Annotated[pl.DataFrame, ROUNDS]


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


def rounds_of(launched: Launched, begins: pl.Series) -> Rounds:
    """What each round runs, from its begin to the next one's.

    Args:
        launched: in order.
        begins: where rounds begin, as rows, and where the last one ends.
    """
    lengths = begins.diff(null_behavior="drop").alias("length")
    number = pl.int_range(pl.len(), dtype=pl.Int64).repeat_by("length").explode()
    name, at = pl.col("name"), pl.col("round")
    return (
        launched[int(begins[0]) : int(begins[-1])]
        .select("name", "gpu_ns", "computes", lengths.to_frame().select(round=number).to_series())
        .filter("computes")
        .group_by("name", "round")
        .agg(pl.col("gpu_ns").sum())
        .sort("name", "round")
        .with_columns(
            pl.when(name == name.shift()).then(at - at.shift()).alias("before"),
            pl.when(name == name.shift(-1)).then(at.shift(-1) - at).alias("after"),
        )
        .match_to_schema(ROUNDS)
    )


def are_related(rounds: Rounds, count: int) -> bool:
    """Whether half or more of the rounds behind the first run a kernel that the one before ran.

    Args:
        rounds: what they run.
        count: how many there are.
    """
    related = rounds.filter(pl.col("before") == 1)["round"].n_unique()
    return 2 * related >= count - 1


def switches(rounds: Rounds, count: int) -> pl.Series:
    """The rounds with which another loop begins: of what they and the one before run, half of the
    kernels and more than half of the time are new or gone. None where a kernel is new in two of
    them: these loops alternate within a longer one.

    Args:
        rounds: what they run.
        count: how many there are.
    """
    at, before, after = pl.col("round"), pl.col("before"), pl.col("after")
    new = (before.fill_null(count) > LASTING) & (after == 1)
    gone = (after.fill_null(count) > LASTING) & (before == 1)
    sides = pl.concat(
        [
            rounds.select(at, "gpu_ns", differs=new, kernels=before.ne_missing(1)),
            rounds.select(at + 1, "gpu_ns", differs=gone, kernels=pl.lit(value=True)),
        ]
    )
    differs, time = pl.col("differs").fill_null(value=False), pl.col("gpu_ns")
    found = (
        sides.filter(at.is_between(LASTING, count - LASTING))
        .group_by("round")
        .agg(
            (2 * differs.sum() >= pl.col("kernels").sum()).alias("other"),
            (2 * time.filter(differs).sum() > time.sum()).alias("longer"),
        )
        .filter("other", "longer")["round"]
        .sort()
    )
    begun = rounds.filter(new, at.is_in(found.implode()))["name"]
    return found.clear() if begun.is_duplicated().any() else found
