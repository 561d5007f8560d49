"""What the rounds of a loop have in common, and where another loop begins (spec §8.28)."""

from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.steps.launched import Launched

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
