"""What repeats in the launches of a program that marks no steps (spec §8.25 to §8.28)."""

from dataclasses import dataclass
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.steps.launched import Launched
from nsysflow.analysis.steps.passes import CONTEXT, PASSES, are_passes, contexts, ends_in_itself
from nsysflow.analysis.steps.ranges import MIN_REPEATS

MOST_LAUNCHES: Final = 1 << 16
"""Of more launches, so many in the middle decide. They take 0.1 s (one core, 2026-11-25)."""

NAMES_OF_STEP: Final = 3
"""Trials of one kernel repeat it with what clears the cache between: two names."""

NAMES_ALONE: Final = 5
"""Without a copy, a wait or a graph in them, steps have so many names. The layers of a plain
network repeat three or four, and so do the updates of its tensors."""

LEAST_TIME: Final = 12
"""What takes less than a twelfth of the GPU's time is no loop of steps. The regular steps of the
shortest loop that was one took less than a tenth, the tensors that a step updated one by one 4 to
8.7 %: the two overlap."""

WARM_UP: Final = 3
"""Fewer passes than these, apart from the loop, warm up for it or follow it."""

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


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """What repeats in a row of launches.

    Attributes:
        begins: where each step begins, as rows.
        end: the row after the last step.
        cut: whether the recording ended before the last step did.
    """

    begins: pl.Series
    end: int
    cut: bool


def find_repetition(launched: Launched) -> Repetition | None:
    """What repeats in these launches; None if nothing that can be steps does.

    Args:
        launched: in order.
    """
    if len(launched) < MIN_REPEATS:
        return None
    first = max(0, (len(launched) - MOST_LAUNCHES) // 2)
    deciding = launched.slice(first, MOST_LAUNCHES)
    marks = _good_marks(deciding)
    if _updating(marks).is_empty() and (passes := _passes(deciding, marks)):
        return _repetition(launched, passes)
    while not (known := _evident(marks, deciding)).is_empty():
        level = _innermost(known)
        mark = _border(level)
        if _is_rich(deciding, mark):
            return _repetition(launched, mark) if _ends_soon(deciding, mark) else None
        marks = _longer(marks, level)
    return None


def _ends_soon(launched: Launched, mark: dict[str, int]) -> bool:
    """Whether updates or graphs tell that these are steps, or little follows: what follows a loop
    within a step is the rest of it."""
    told = 5 * max(mark["optimizers"], mark["graphs"]) >= 4 * mark["regular"]
    return told or len(launched) - mark["last"] <= 2 * mark["length"]


def _shortest(marks: Marks) -> Marks:
    """The marks of the shortest repetition."""
    return marks.filter(2 * pl.col("length") <= 3 * pl.col("length").min())


def _longer(marks: Marks, level: Marks) -> Marks:
    """The marks of the next longer repetition and of those beyond."""
    shortest = level.select(pl.col("length").min()).item()
    return marks.filter(2 * pl.col("length") > 3 * shortest)


def _passes(launched: Launched, marks: Marks) -> dict[str, int] | None:
    """The mark that begins each pass through a model, of the shortest passes there are; None if the
    program makes no passes."""
    marks = marks.filter("apart", pl.col("places") >= PASSES)
    while not marks.is_empty():
        level = _shortest(marks)
        mark = _border(level)
        places = _places(launched, mark)
        if _is_rich(launched, mark) and are_passes(launched, places, mark["length"]):
            return mark
        marks = _longer(marks, level)
    return None


def _places(launched: Launched, mark: dict[str, int]) -> pl.Series:
    """The rows of a mark."""
    return (_codes(launched)[mark["family"]] == mark["code"]).arg_true().cast(pl.Int64)


def _codes(launched: Launched) -> list[pl.Series]:
    """What launches may have in common: the name, this with the grid, and the name with that of
    the next launch."""
    name, exact = pl.col("name"), pl.col("exact")
    families = (name, exact, name * 2**32 + name.shift(-1))
    return [launched.select(code.alias("code")).to_series() for code in families]


def _good_marks(launched: Launched) -> Marks:
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
        (LEAST_TIME * pl.col("gpu_ns") >= launched["gpu_ns"].sum()) | _in_most("graphs"),
        _in_most("computing"),
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


def _in_most(holding: str) -> pl.Expr:
    """Whether at least four fifths of the regular stretches hold such a launch."""
    return 5 * pl.col(holding) >= 4 * pl.col("regular")


def _updating(marks: Marks) -> Marks:
    """The marks that update a model, if they reach over half of the time."""
    told = marks.filter(_in_most("optimizers") | _in_most("graphs") | _exchanging())
    return told.filter(2 * pl.col("reach_ns") >= pl.col("gpu_ns").max(), _in_most("optimizers"))


def _exchanging() -> pl.Expr:
    """Whether marks have an input or a result, and are no layers."""
    return _in_most("exchanges") & pl.col("apart")


def _evident(marks: Marks, launched: Launched) -> Marks:
    """The marks of which something says that steps begin there, and not layers or trials: those
    that update a model, else that exchange, else of graphs, else with nothing beside them."""
    for told in (
        _updating(marks),
        marks.filter(_exchanging()),
        marks.filter(_in_most("optimizers") | _in_most("graphs")),
    ):
        if not told.is_empty():
            return told
    left = len(launched) - pl.col("last") - pl.col("length")
    marks = marks.filter(
        "apart",
        pl.col("first") == 0,
        pl.col("regular") == pl.col("places") - 1,
        10 * left.abs() <= pl.col("length"),
    )
    rows = marks.iter_rows(named=True)
    whole = [ends_in_itself(launched, _places(launched, mark)) for mark in rows]
    return marks.filter(pl.Series(whole, dtype=pl.Boolean))


def _innermost(marks: Marks) -> Marks:
    """The marks of the shortest repetition that is as regular as longer ones."""
    level = marks.filter(2 * pl.col("gpu_ns") >= pl.col("gpu_ns").max())
    steady = level.filter(4 * pl.col("regular") >= 3 * (pl.col("places") - 1))
    level = level if steady.is_empty() else steady
    again, others = pl.col("alike") - 1, pl.col("regular") - 1
    best = level.sort(again / others, descending=True).row(0, named=True)
    return _shortest(
        level.filter(3 * again * (best["regular"] - 1) >= 2 * (best["alike"] - 1) * others)
    )


def _border(level: Marks) -> dict[str, int]:
    """The mark where the steps begin: behind the optimizer, else the first one."""
    always = level.filter(pl.col("optimizers") == pl.col("regular"))
    level = level if always.is_empty() else always
    counts = level.group_by("places").len().sort("len", "places", descending=True)
    usual = counts["places"][0]
    if level.select(_in_most("optimizers").any()).item():
        near = level.filter((pl.col("places") - usual).abs() <= 1)
        behind = near.filter(~pl.col("of_optimizer"))
        order = ["updates", "until_optimizer", "first", "family"]
        ranked = (near if behind.is_empty() else behind).sort(
            order, descending=[True, True, False, False], nulls_last=True
        )
    else:
        ranked = level.filter(pl.col("places") == usual).sort("first", "family")
    return ranked.row(0, named=True)


def _is_rich(launched: Launched, mark: dict[str, int]) -> bool:
    """Whether a step holds a graph, or as many names as are seldom repeated within one."""
    step = launched.slice(mark["last"] - mark["length"], mark["length"])
    told = max(mark["exchanges"], mark["graphs"])
    least = NAMES_OF_STEP if 5 * told >= 4 * mark["regular"] else NAMES_ALONE
    return step["graph"].any() or step["name"].n_unique() >= least


def _repetition(launched: Launched, mark: dict[str, int]) -> Repetition | None:
    """The steps that begin at a mark; None where fewer than three are left."""
    begins, end = _places(launched, mark), len(launched)
    optimizing = 5 * mark["optimizers"] >= 4 * mark["regular"]
    if optimizing:
        begins, end = _around_updates(begins, launched["optimizer"], end)
    else:
        begins, end = _without_warm_up(begins, mark["length"], end)
    if len(begins) < MIN_REPEATS:
        return None
    back = _moved_back(launched, begins, mark["length"], optimizing=optimizing)
    begins = begins - back
    end = end if end == len(launched) else end - back
    last, left = int(begins[-1]), min(end - int(begins[-1]), mark["length"])
    updated = launched["optimizer"][last:end].any()
    cut = not updated if optimizing else left < mark["shortest"]
    names = launched["name"]
    if cut and not names[last : last + left].equals(names[begins[-2] : begins[-2] + left]):
        end = min(last, int(begins[-2]) + mark["length"])
        return _of_three(Repetition(begins=begins[:-1], end=end, cut=False))
    return _of_three(Repetition(begins=begins, end=last + left, cut=cut))


def _of_three(found: Repetition) -> Repetition | None:
    return found if len(found.begins) >= MIN_REPEATS else None


def _around_updates(begins: pl.Series, optimizer: pl.Series, end: int) -> tuple[pl.Series, int]:
    """The begins of the first to the last stretch that holds an optimizer, and where that ends.
    What follows the last begin may be a step, too, unless the stretch before it is none."""
    updates = optimizer.arg_true().cast(pl.Int64)
    before = updates.search_sorted(begins, side="left").cast(pl.Int64)
    holding = (before.diff().drop_nulls() > 0).arg_true()
    if holding.is_empty():
        return begins.clear(), end
    first, last = int(holding[0]), int(holding[-1])
    if last == len(begins) - 2:
        return begins[first:], end
    return begins[first : last + 1], int(begins[last + 1])


def _without_warm_up(begins: pl.Series, length: int, end: int) -> tuple[pl.Series, int]:
    """The begins of the loop without one or two that a longer stretch parts from all others, and
    where the last one ends."""
    apart = (2 * begins.diff().drop_nulls() > 3 * length).arg_true()
    if len(apart) != 1:
        return begins, end
    before, behind = int(apart[0]) + 1, len(begins) - int(apart[0]) - 1
    if before < WARM_UP <= behind:
        return begins[before:], end
    if behind < WARM_UP <= before:
        return begins[:before], int(begins[before])
    return begins, end


def _moved_back(launched: Launched, begins: pl.Series, length: int, *, optimizing: bool) -> int:
    """How many launches before the first begin are those before one in the middle: they belong to
    the steps, too. None of them is an optimizer's."""
    first, middle = int(begins[0]), int(begins[len(begins) // 2])
    reach = min(first, length - 1)
    one, other = (launched[at - reach : at].reverse() for at in (first, middle))
    same = one["name"] == other["name"]
    if optimizing:
        same &= ~one["optimizer"]
    return int(same.cast(pl.Int8).cum_min().sum())
