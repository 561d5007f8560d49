"""What repeats in the launches of a program that marks no steps (spec §8.25 to §8.28)."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import polars as pl

from nsysflow.analysis.steps.launched import Launched
from nsysflow.analysis.steps.marks import LEAST_TIME, Marks, good_marks, in_most, places_of
from nsysflow.analysis.steps.passes import (
    PASSES,
    are_passes,
    are_related,
    ends_in_itself,
    rounds_of,
    switches,
)
from nsysflow.analysis.steps.ranges import MIN_REPEATS

MOST_LAUNCHES: Final = 1 << 16
"""Of more launches, so many in the middle decide. They take 0.1 s (one core, 2026-11-25)."""

NAMES_OF_STEP: Final = 3
"""Trials of one kernel repeat it with what clears the cache between: two names."""

NAMES_ALONE: Final = 5
"""Without a copy, a wait or a graph in them, steps have so many names. The layers of a plain
network repeat three or four, and so do the updates of its tensors."""

LEAST_PASSES: Final = 5
"""Three passes warm a graph up before it is captured. So few passes beside the steps are no
loop."""

WARM_UP: Final = 3
"""Fewer passes than these, apart from the loop, warm up for it or follow it."""


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

    def gpu_ns(self, launched: Launched) -> int:
        """The time of all that these steps launched."""
        first = int(self.begins[0])
        return int(launched["gpu_ns"].slice(first, self.end - first).sum())

    def moved(self, rows: int) -> "Repetition":
        """The same where so many launches precede."""
        return Repetition(begins=self.begins + rows, end=self.end + rows, cut=self.cut)


def find_repetition(launched: Launched) -> Repetition | None:
    """What repeats in these launches, of loops in turn the one with most GPU time; None if nothing
    that can be steps does.

    Args:
        launched: in order.
    """
    loops = _loops_in_turn(launched)
    return max(loops, key=lambda loop: loop.gpu_ns(launched), default=None)


def lasts(launched: Launched, loop: Repetition) -> bool:
    """Whether a loop beside others is none of a few passes, or of hardly any time.

    Args:
        launched: in order.
        loop: in these.
    """
    enough = len(loop.begins) >= LEAST_PASSES
    return enough and LEAST_TIME * loop.gpu_ns(launched) >= launched["gpu_ns"].sum()


def _loops_in_turn(launched: Launched) -> list[Repetition]:
    """What repeats, as one loop or as several that follow each other."""
    if len(launched) < MIN_REPEATS:
        return []
    first = max(0, (len(launched) - MOST_LAUNCHES) // 2)
    deciding = launched.slice(first, MOST_LAUNCHES)
    marks = good_marks(deciding)
    passes = _passes(deciding, marks) if _updating(marks).is_empty() else None
    mark = passes or _evident_mark(deciding, marks)
    found = _repetition(launched, mark) if mark else None
    if mark is None or found is None:
        return []
    if _optimizes(mark):
        return [found]
    borders = pl.concat([found.begins, pl.Series([found.end])])
    borders = borders.filter(borders.is_between(first - mark["length"], first + len(deciding)))
    rounds = rounds_of(launched, borders)
    if not are_related(rounds, len(borders) - 1):
        return []
    followed = not passes and not _ends_soon(deciding, mark)
    behind = _loops_between(launched, found.end, len(launched)) if followed else []
    if followed and not (lasts(launched, found) and _begin_soon(behind, found, mark["length"])):
        return []
    others = borders.gather(switches(rounds, len(borders) - 1)).to_list()
    others += _longer_stretch(launched, found, mark["length"])
    parts = pairwise([0, *sorted({*others}), found.end if behind else len(launched)])
    loops = [loop for part in parts for loop in _loops_between(launched, *part)] if others else []
    return [*(loops if len(loops) > 1 else [found]), *behind]


def _loops_between(launched: Launched, first: int, end: int) -> list[Repetition]:
    """The loops that last from one row to another, looked at as if that were all."""
    loops = [loop.moved(first) for loop in _loops_in_turn(launched.slice(first, end - first))]
    return [loop for loop in loops if lasts(launched, loop)]


def _begin_soon(loops: list[Repetition], found: Repetition, length: int) -> bool:
    """Whether there are loops, and no more launches before them than a step has of that length, or
    the first of theirs: else what follows a loop is the rest of the step that it is in."""
    if not loops:
        return False
    begins = loops[0].begins
    return int(begins[0]) - found.end <= max(length, int(begins[1]) - int(begins[0]))


def _longer_stretch(launched: Launched, found: Repetition, length: int) -> list[int]:
    """Where the one stretch begins and ends in which another loop follows a step; nothing if there
    are none, or several."""
    long = (found.begins.diff(null_behavior="drop") > 2 * length).arg_true()
    if long.is_empty():
        return []
    first, end = found.begins.gather(long) + length, found.begins.gather(long + 1)
    spent_ns = launched["gpu_ns"].cum_sum()
    inside_ns = spent_ns.gather(end - 1) - spent_ns.gather(first - 1)
    enough = LEAST_TIME * inside_ns >= spent_ns[-1]
    stretches = zip(first.filter(enough), end.filter(enough), strict=True)
    known = [one for one in stretches if _loops_between(launched, *one)]
    return [*known[0]] if len(known) == 1 else []


def _evident_mark(launched: Launched, marks: Marks) -> dict[str, int] | None:
    """The mark where the steps begin, of the shortest repetition that is rich enough."""
    while not (known := _evident(marks, launched)).is_empty():
        level = _innermost(known)
        mark = _border(level)
        if _is_rich(launched, mark):
            return mark
        marks = _longer(marks, level)
    return None


def _optimizes(mark: dict[str, int]) -> bool:
    return 5 * mark["optimizers"] >= 4 * mark["regular"]


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
        places = places_of(launched, mark)
        if _is_rich(launched, mark) and are_passes(launched, places, mark["length"]):
            return mark
        marks = _longer(marks, level)
    return None


def _updating(marks: Marks) -> Marks:
    """The marks that update a model, if they reach over half of the time."""
    told = marks.filter(in_most("optimizers") | in_most("graphs") | _exchanging())
    return told.filter(2 * pl.col("reach_ns") >= pl.col("gpu_ns").max(), in_most("optimizers"))


def _exchanging() -> pl.Expr:
    """Whether marks have an input or a result, and are no layers."""
    return in_most("exchanges") & pl.col("apart")


def _evident(marks: Marks, launched: Launched) -> Marks:
    """The marks of which something says that steps begin there, and not layers or trials: those
    that update a model, else that exchange, else of graphs, else with nothing beside them."""
    for told in (
        _updating(marks),
        marks.filter(_exchanging()),
        marks.filter(in_most("optimizers") | in_most("graphs")),
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
    whole = [ends_in_itself(launched, places_of(launched, mark)) for mark in rows]
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
    if level.select(in_most("optimizers").any()).item():
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
    begins, end = places_of(launched, mark), len(launched)
    optimizing = _optimizes(mark)
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
