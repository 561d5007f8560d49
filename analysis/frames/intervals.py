"""Intervals: half-open, laid end to end on one axis, summed by prefix.

*Axis.* Tracks (devices, threads, …) are numbered from 0 and laid end to end on one time line,
`Axis.at(track, t)`. No interval reaches into the next track, so that one running maximum, search or
sort serves all tracks: no group-by, no loop over tracks.

*Cover.* Disjoint intervals sorted by start, with the time covered before each. How much of `[x, y)`
they cover takes two searches, `Cover.until(y) - Cover.until(x)`. Covered nanoseconds are numbered,
and `Cover.slices` finds their owners: that is how a stall is charged to its call.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TypeVar

import polars as pl

from nsysflow.analysis.frames.columns import repeated
from nsysflow.analysis.frames.parallel import computed_once
from nsysflow.analysis.frames.scratch import Scratch

T = TypeVar("T", pl.Expr, pl.Series)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The place of a (track, time) pair when all tracks are laid end to end.

    Attributes:
        origin_ns: the earliest time of any row.
        stride_ns: the length of a track: the span of the trace and a margin that nothing bridges.
    """

    origin_ns: int
    stride_ns: int

    @classmethod
    def over(cls, first_ns: int, last_ns: int, *, margin_ns: int) -> Self:
        """An axis for times in `[first_ns, last_ns]`, tracks at least `margin_ns` apart."""
        return cls(origin_ns=first_ns, stride_ns=last_ns - first_ns + margin_ns + 1)

    def at(self, track: T, time_ns: T) -> T:
        """Place of `time_ns` on `track`."""
        return time_ns - self.origin_ns + track.cast(pl.Int64) * self.stride_ns

    def track(self, place: pl.Expr) -> pl.Expr:
        """The track that a place lies on."""
        return place // self.stride_ns

    def time_ns(self, place: pl.Expr) -> pl.Expr:
        """The time that a place stands for."""
        return place % self.stride_ns + self.origin_ns


def on_axis(rows: pl.DataFrame, axis: Axis, track: str = "device_no") -> pl.DataFrame:
    """`start`, `end` on the axis of rows with a track, `start_ns` and `end_ns`."""
    sides = {"start": rows["start_ns"], "end": rows["end_ns"]}
    return pl.DataFrame({name: axis.at(rows[track], time_ns) for name, time_ns in sides.items()})


def inside(rows: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    """The parts of rows with `start_ns` and `end_ns` in the time of the axis; empty ones are left
    out."""
    last_ns = axis.origin_ns + axis.stride_ns - 1
    bounded = pl.col("start_ns", "end_ns").clip(axis.origin_ns, last_ns).cast(pl.Int64)
    return rows.with_columns(bounded).filter(pl.col("end_ns") > pl.col("start_ns"))


def reached_before(end: pl.Expr) -> pl.Expr:
    """Latest end among the rows before this one; null for the first."""
    return end.cum_max().shift(1)


def sort_with_ties(
    frame: pl.DataFrame, key: str, ties: list[pl.Expr], scratch: Scratch | None = None
) -> pl.DataFrame:
    """`frame` sorted by `key`, rows of equal key by `ties` (nulls last).

    Only rows that tie are sorted by all keys: several keys cost 3 times as much as one (160 ms and
    60 ms for 2.4 M calls, 2-core VM, 2026-11-20), and ties are rare. With a `scratch`, columns are
    sorted one by one, and kept there.
    """
    if not frame[key].is_sorted():
        frame = (
            frame.sort(key) if scratch is None else scratch.gathered(frame, frame[key].arg_sort())
        )
    column = pl.col(key)
    tied = frame.select((column == column.shift(1)) | (column == column.shift(-1))).to_series()
    if not tied.any():
        return frame
    row = tied.arg_true().alias("_row")
    mixed = frame[row].with_columns(row)
    resolved = mixed.sort(key, *ties, nulls_last=True, maintain_order=True)["_row"]
    if resolved.equals(row):
        return frame
    order = pl.int_range(len(frame), dtype=pl.UInt32, eager=True).scatter(row, resolved)
    return frame[order] if scratch is None else scratch.gathered(frame, order)


def merge(intervals: pl.DataFrame, *, within_ns: int = 0) -> pl.DataFrame:
    """Union of `intervals` (`start`, `end`, any order) as disjoint `start`, `end`, sorted.

    Intervals no further apart than `within_ns` are joined into one.
    """
    intervals = intervals[["start", "end"]]
    if not intervals["start"].is_sorted():
        intervals = intervals.sort("start")
    reached = reached_before(pl.col("end"))
    opens = (pl.col("start") - reached > within_ns).fill_null(value=True)
    first = intervals.select(pl.col("start"), pl.col("end").cum_max(), opens.alias("opens"))
    last = pl.concat([first["opens"].slice(1), repeated(value=True, length=min(1, len(first)))])
    return pl.DataFrame(
        {"start": first["start"].filter(first["opens"]), "end": first["end"].filter(last)},
        schema={"start": pl.Int64(), "end": pl.Int64()},
    )


def between(intervals: pl.DataFrame) -> pl.DataFrame:
    """The stretches before, between and after disjoint, sorted `intervals`."""
    start, end = intervals["start"], intervals["end"]
    first, last = (pl.Series([edge], dtype=pl.Int64) for edge in (-(2**63), 2**63 - 1))
    return pl.DataFrame({"start": pl.concat([first, end]), "end": pl.concat([start, last])})


def flatten(
    claims: pl.DataFrame, *, rank: Callable[[pl.DataFrame], pl.DataFrame], keep: list[str]
) -> pl.DataFrame:
    """Assign each instant to the interval of lowest rank that covers it.

    Args:
        claims: `start`, `end` and any other columns, sorted by `start`.
        rank: from claims that overlap to the columns that order them, nulls last.
        keep: the columns of the winning claim that the pieces get.

    Returns:
        Disjoint pieces sorted by `start`: `start`, `end`, and `keep`.
    """
    columns = ["start", "end", *keep]
    lasting = claims["end"] > claims["start"]
    if not lasting.all():
        claims = claims.filter(lasting)
    clashes = (pl.col("start") < reached_before(pl.col("end"))).fill_null(value=False)
    mixed = claims.select(clashes | clashes.shift(-1, fill_value=False)).to_series()
    if not mixed.any():
        return claims.select(columns)
    pieces = _contested(claims.filter(mixed), rank).select(columns)
    return claims.select(columns).filter(~mixed).merge_sorted(pieces, key="start")


def _contested(claims: pl.DataFrame, rank: Callable[[pl.DataFrame], pl.DataFrame]) -> pl.DataFrame:
    """`flatten` for claims that overlap: cut at every border, the best claim takes each slot."""
    places = rank(claims).with_row_index("_row")
    best_first = places.sort(pl.all().exclude("_row"), nulls_last=True, maintain_order=True)
    claims = claims[best_first["_row"]].with_row_index("_order")
    borders = pl.concat([claims["start"], claims["end"]]).unique().sort()
    first = borders.search_sorted(claims["start"])
    past = borders.search_sorted(claims["end"])
    winners = (
        claims.select("_order", pl.int_ranges(first, past, dtype=pl.UInt32).alias("slot"))
        .explode("slot")
        .group_by("slot")
        .agg(pl.col("_order").min())
        .sort("slot")
    )
    slot, winner = pl.col("slot"), pl.col("_order")
    same = ((winner == winner.shift(1)) & (slot == slot.shift(1) + 1)).fill_null(value=False)
    runs = winners.with_columns(same.alias("same"))
    ends = runs.filter(~runs["same"].shift(-1, fill_value=False))["slot"]
    starts = runs.filter(~pl.col("same"))
    return (
        claims.drop("start", "end")[starts["_order"]]
        .with_columns(
            borders[starts["slot"]].alias("start"),
            borders[ends + 1].alias("end"),
        )
        .drop("_order")
    )


def overlaps(rows: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    """A row per overlap of a row with one of `others`.

    `start` and `end` are the overlap, `other` is the row in `others`. The other columns are those
    of `rows`.

    Args:
        rows: `start`, `end`, in any order.
        others: `start`, `end`, disjoint and sorted.
    """
    met_at = rows.select(
        pl.lit(others["end"]).search_sorted(pl.col("start"), side="right").alias("first"),
        pl.lit(others["start"]).search_sorted(pl.col("end"), side="left").alias("past"),
    )
    first, past = met_at["first"], met_at["past"]
    met = past > first
    if not met.all():  # a row that meets nothing needs no list of what it meets
        rows, first, past = rows.filter(met), first.filter(met), past.filter(met)
    others_met = pl.int_ranges(first, past, dtype=pl.UInt32).alias("other")
    touched = rows.with_columns(others_met).explode("other")
    inside = others[["start", "end"]][touched["other"]]
    return touched.with_columns(
        pl.max_horizontal("start", inside["start"]).alias("start"),
        pl.min_horizontal("end", inside["end"]).alias("end"),
    )


@dataclass
class Cover:
    """Disjoint intervals, sorted, with the time they cover before each.

    Attributes:
        intervals: `start`, `end`; other columns are kept for `slices`.
    """

    intervals: pl.DataFrame

    @computed_once
    def _reach(self) -> pl.DataFrame:
        length = pl.col("end") - pl.col("start")
        before = (length.cum_sum() - length).cast(pl.Int64)
        offset = (before - pl.col("start")).alias("offset")
        return self.intervals.select("start", "end", offset)

    @property
    def before(self) -> pl.Series:
        """The time covered before each interval."""
        return self._reach["offset"] + self._reach["start"]

    def until(self, places: pl.Series) -> pl.Series:
        """Covered time up to each place."""
        if self.intervals.is_empty():
            return repeated(0, len(places), pl.Int64).alias(places.name)
        at = rows_at_or_before(self._reach, "start", places)
        place, end = at["place"], at["end"]
        reached = place.zip_with(place < end, end) + at["offset"]
        if reached.null_count():  # before the first interval
            reached = reached.fill_null(0)
        return reached.alias(places.name)

    def between(self, start: pl.Series, end: pl.Series) -> pl.Series:
        """Covered time inside each `[start, end)`."""
        return self.until(end) - self.until(start)

    def slices(self, wanted: pl.DataFrame) -> pl.DataFrame:
        """The intervals that contain the covered nanoseconds `[begin, stop)`.

        Args:
            wanted: `begin`, `stop`, counted in covered time from the cover's start, and any other
                columns.

        Returns:
            A row per wanted row and interval it touches, in order: the other columns of both, the
            interval's `start`, and `ns`, the length of the touch.
        """
        touched = addressed(self.before, wanted)
        own = [name for name in wanted.columns if name not in ("begin", "stop")]
        owned = [name for name in self.intervals.columns if name != "end"]
        pieces = touched[own].hstack(self.intervals[owned][touched["piece"]].get_columns())
        return pieces.hstack([(touched["stop"] - touched["begin"]).alias("ns")])


def addressed(before: pl.Series, wanted: pl.DataFrame) -> pl.DataFrame:
    """The pieces, laid end to end, that contain the places `[begin, stop)`.

    Args:
        before: the length of all pieces before each; the last piece holds all places after it.
        wanted: `begin`, `stop`, counted along the pieces, and any other columns.

    Returns:
        A row per wanted row and piece it touches, in order: the other columns, `piece` (its
        number), `begin` and `stop` of the touch, counted from the piece's own start.
    """
    wanted = wanted.filter(pl.col("stop") > pl.col("begin"))
    first = pl.lit(before).search_sorted(pl.col("begin"), side="right") - 1
    past = pl.lit(before).search_sorted(pl.col("stop"), side="left")
    pieces = pl.int_ranges(first, past, dtype=pl.UInt32).alias("piece")
    touched = wanted.with_columns(pieces).explode("piece")
    start = before[touched["piece"]]
    after = pl.concat([before.slice(1), repeated(None, 1, pl.Int64)])[touched["piece"]]
    return touched.with_columns(
        pl.max_horizontal("begin", start) - start,
        pl.min_horizontal("stop", after) - start,
    )


def rows_at_or_before(rows: pl.DataFrame, key: str, places: pl.Series) -> pl.DataFrame:
    """Each `place` with the other columns of the last row whose `key` is at or before it; null
    before the first.

    Sorted places, the usual case, are found by walking along both: 12 ms for 1.0 M places in 2.4 M
    rows, where an index and a gather of each column took 18 ms, and binary search takes 45 ms
    (2-core VM, 2026-11-23).

    Args:
        rows: sorted by `key`.
        key: the column to look in.
        places: in any order, with nulls.
    """
    asked = places.to_frame("place")
    if places.null_count() == 0 and places.is_sorted():
        return asked.join_asof(rows, left_on="place", right_on=key, check_sortedness=False)
    index = rows[key].search_sorted(places, side="right").cast(pl.Int64) - 1
    index = index.set(index < 0, None).cast(pl.UInt32)
    return asked.hstack([rows[name][index] for name in rows.columns if name != key])


def last_at_or_before(sorted_places: pl.Series, places: pl.Series) -> pl.Series:
    """Index of the last of `sorted_places` at or before each place; null before the first."""
    known = sorted_places.to_frame("known").with_row_index("index")
    return rows_at_or_before(known, "known", places)["index"]
