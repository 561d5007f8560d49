"""Where steps may begin: what launches have in common, and what lies between (spec §8.25)."""

from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.steps.launched import Launched
from nsysflow.analysis.steps.passes import CONTEXT, contexts
from nsysflow.analysis.steps.ranges import MIN_REPEATS

LEAST_TIME: Final = 12
"""What takes less than a twelfth of the GPU's time is no loop of steps. The regular steps of the
shortest loop that was one took less than a tenth, the tensors that a step updated one by one 4 to
8.7 %: the two overlap."""

MARKS: Final = pl.Schema(
    {
        "family": pl.UInt8(),
        "code": pl.UInt64(),
        "places": pl.Int64(),
        "first": pl.Int64(),
        "last": pl.Int64(),
        "length": pl.Int64(),
        "shortest": pl.Int64(),
        "regular": pl.Int64(),
        "regular_launches": pl.Int64(),
        "known": pl.Int64(),
        "gpu_ns": pl.Int64(),
        "reach_ns": pl.Int64(),
        "alike": pl.Int64(),
        "computing": pl.Int64(),
        "graphs": pl.Int64(),
        "optimizers": pl.Int64(),
        "exchanges": pl.Int64(),
        "updates": pl.Int64(),
        "until_optimizer": pl.Int64(),
        "of_optimizer": pl.Boolean(),
        "apart": pl.Boolean(),
    }
)
"""A row per mark. Of its stretches, `length` is the median, `regular` how many are near it; of
these, `gpu_ns` is their time (`reach_ns` that of all), `computing`, `graphs`, … how many hold
such a launch, and `alike` how many run the same kernels, or update the same tensors. `updates` is
how many hold an optimizer; `apart` is whether what follows them tells that they do not lie within
one step."""
Marks = Annotated[pl.DataFrame, MARKS]


def places_of(launched: Launched, mark: dict[str, int]) -> pl.Series:
    """The rows of a mark."""
    return (_codes(launched)[mark["family"]] == mark["code"]).arg_true().cast(pl.Int64)


def _codes(launched: Launched) -> list[pl.Series]:
    """What launches may have in common: the name, this with the grid, and the name with that of
    the next launch."""
    name, exact = pl.col("name"), pl.col("exact")
    families = (name, exact, name * 2**32 + name.shift(-1))
    return [launched.select(code.alias("code")).to_series() for code in families]


def good_marks(launched: Launched) -> Marks:
    """The marks whose stretches are mostly about as long as each other, and hold what repeats."""
    sums = _sums_before(launched)
    row = pl.int_range(pl.len(), dtype=pl.Int64)
    next_update = launched.select(pl.when("optimizer").then(row).backward_fill()).to_series()
    last_update = launched.select(pl.when("optimizer").then(row).otherwise(-1).max()).item()
    found = [MARKS.to_frame()]
    for family, code in enumerate(_codes(launched)):
        stretches = _stretches(code)
        inside = pl.all().gather(stretches["past"]) - pl.all().gather(stretches["place"])
        placed = stretches.with_columns(
            *sums.select(inside),
            launched["optimizer"].gather(stretches["place"]).alias("of_optimizer"),
            (next_update.gather(stretches["place"]) - stretches["place"]).alias("until_optimizer"),
        )
        open_updates = (pl.col("last") <= last_update).cast(pl.Int64)
        summed = _summed_up(placed)
        behind = sums["backward"][-1] - sums["backward"].gather(summed["last"])
        undone = (pl.col("backward") == 0) & (behind >= pl.col("places") - 1)
        undoing = pl.col("backward") == pl.col("last") - pl.col("first")
        # what is followed by an update or backward that it does not hold: layers, parts of a batch
        within = (pl.col("first") < last_update) | undone | undoing
        marks = summed.with_columns(
            pl.lit(family, pl.UInt8).alias("family"),
            pl.col("updates") + open_updates,
            within.not_().alias("apart"),
        ).drop("backward")
        found.append(marks.match_to_schema(MARKS, integer_cast="upcast"))
    marks = pl.concat(found)
    return marks.filter(
        3 * pl.col("regular") >= 2 * (pl.col("places") - 1),
        2 * pl.col("known") >= pl.col("regular_launches"),
        (LEAST_TIME * pl.col("gpu_ns") >= launched["gpu_ns"].sum()) | in_most("graphs"),
        in_most("computing"),
    )


def _sums_before(launched: Launched) -> pl.DataFrame:
    """Of all launches before each one, and of all: their time, how many are of a sort, and numbers
    that tell which kernels they ran, and which tensors they updated: batches of many lengths run
    other kernels, and update the same."""
    again = contexts(launched).select(pl.len().over("context") > 1).to_series()
    again &= pl.int_range(len(launched), eager=True) >= CONTEXT - 1
    # a sum of as many such numbers as decide fits into 63 bits
    kernels = pl.when("computes").then(pl.col("name").hash() // 2**22).otherwise(0)
    updates = pl.when("optimizer").then(pl.col("exact").hash() // 2**22).otherwise(0)
    counted = launched.select(
        pl.col("gpu_ns"),
        *(pl.col(sort).cast(pl.Int64) for sort in ("graph", "optimizer", "exchange", "backward")),
        (pl.lit(again) | pl.col("graph")).cast(pl.Int64).alias("known"),
        kernels.cast(pl.Int64).alias("kernels"),
        updates.cast(pl.Int64).alias("updating"),
        (pl.col("computes") & ~pl.col("solver")).cast(pl.Int64).alias("computing"),
    )
    return pl.concat([counted.clear(1), counted.select(pl.all().cum_sum())]).fill_null(0)


def _stretches(code: pl.Series) -> pl.DataFrame:
    """From each launch with a code to the next one with it: `code`, `place`, `past`, `length`;
    of codes that three launches or more have."""
    rows = code.to_frame().with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("place"))
    rows = rows.drop_nulls().filter(pl.len().over("code") >= MIN_REPEATS).sort("code", "place")
    following = pl.when(pl.col("code") == pl.col("code").shift(-1)).then(pl.col("place").shift(-1))
    rows = rows.with_columns(following.alias("past")).drop_nulls()
    return rows.with_columns((pl.col("past") - pl.col("place")).alias("length"))


def _summed_up(stretches: pl.DataFrame) -> pl.DataFrame:
    """A row per mark, of its stretches; without its family."""
    length, median = pl.col("length"), pl.col("median")
    regular = (2 * length >= median) & (length <= 2 * median)
    optimizing = pl.col("is_regular") & (pl.col("optimizer") > 0)
    lower_median = length.sort().get((pl.len() - 1) // 2).over("code").alias("median")
    return (
        stretches.with_columns(lower_median)
        .with_columns(regular.alias("is_regular"))
        .group_by("code")
        .agg(
            (pl.len() + 1).alias("places"),
            pl.col("place").min().alias("first"),
            pl.col("past").max().alias("last"),
            length.filter("is_regular").min().alias("shortest"),
            median.first().alias("length"),
            pl.col("is_regular").sum().alias("regular"),
            length.filter("is_regular").sum().alias("regular_launches"),
            pl.col("gpu_ns").sum().alias("reach_ns"),
            pl.col("backward").sum(),
            pl.col("known", "gpu_ns").filter("is_regular").sum(),
            pl.max_horizontal(
                pl.col("kernels").filter("is_regular").unique_counts().max(),
                pl.col("updating").filter(optimizing).unique_counts().max(),
            ).alias("alike"),
            *(
                (pl.col("is_regular") & (pl.col(sort) > 0)).sum().alias(f"{sort}s")
                for sort in ("graph", "optimizer", "exchange")
            ),
            (pl.col("is_regular") & (pl.col("computing") > 0)).sum().alias("computing"),
            (pl.col("optimizer") > 0).sum().alias("updates"),
            pl.col("until_optimizer").sort().drop_nulls().alias("untils"),
            pl.col("of_optimizer").first(),
        )
        .with_columns(
            pl.col("untils")
            .list.get((pl.col("untils").list.len() - 1) // 2, null_on_oob=True)
            .alias("until_optimizer")
        )
        .drop("untils")
    )


def in_most(holding: str) -> pl.Expr:
    """Whether at least four fifths of the regular stretches hold such a launch."""
    return 5 * pl.col(holding) >= 4 * pl.col("regular")
