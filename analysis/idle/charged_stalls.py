"""Which stall used up the run-ahead that a gap lacks (spec §3, step 3).

After a stall the host has no run-ahead left. Work that would have been hidden is exposed, in one
gap or over many. The stalled time since the gap before is the *rest*. A gap takes its share from
the end of the rest and leaves the remainder to the gaps that follow.
"""

from dataclasses import dataclass
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.frames.columns import dense, repeated
from nsysflow.analysis.frames.intervals import (
    Axis,
    Cover,
    addressed,
    between,
    merge,
    on_axis,
    overlaps,
)

_TRACK: Final = ("device_no", "process_no")
_ON_TRACK: Final = dict.fromkeys(_TRACK, pl.UInt32())

SEARCHED: Final = pl.Schema({**_ON_TRACK, "h_ns": pl.Int64()})
"""Stalled time before `h_ns` was looked at."""

REST: Final = pl.Schema(
    {
        **_ON_TRACK,
        "thread_no": pl.UInt32(),
        "other_no": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
    }
)
"""The stalled time that no gap was charged with so far, in order."""

HOST: Final = pl.Schema(
    {
        **_ON_TRACK,
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
    }
)
"""The host time of gaps that ends after what was searched."""


@dataclass(frozen=True, kw_only=True)
class CarryOver:
    """What step 3 hands on from one slice of the gaps to the next.

    Attributes:
        searched: `SEARCHED`.
        rest: `REST`.
        host: `HOST`.
    """

    searched: Annotated[pl.DataFrame, SEARCHED]
    rest: Annotated[pl.DataFrame, REST]
    host: Annotated[pl.DataFrame, HOST]


AT_THE_START: Final = CarryOver(
    searched=SEARCHED.to_frame(), rest=REST.to_frame(), host=HOST.to_frame()
)
"""What the first slice gets."""


def since_last_gap(
    waiting: pl.DataFrame, searched: pl.DataFrame, first_queued: pl.DataFrame
) -> pl.Series:
    """The time from which each gap looks for stalled time.

    It is the latest `h_ns` of the gaps before it on its device and of its process or, if that is
    later, when the process's first operation there was queued.

    Args:
        waiting: `linked` (whether the gap takes part in step 3), `h_ns`, `device_no`, `process_no`.
        searched: of `CarryOver`.
        first_queued: of `Events`.
    """
    latest = pl.when("linked").then("h_ns").cum_max().forward_fill().shift(1)
    since = waiting.select(*_TRACK, latest.over(_TRACK).alias("since_ns"))
    if not searched.is_empty():
        since = since.join(searched, on=_TRACK, how="left", maintain_order="left")
        since = since.with_columns(pl.max_horizontal("since_ns", "h_ns").alias("since_ns"))
    since = since.join(first_queued, on=_TRACK, how="left", maintain_order="left")
    return since.select(pl.max_horizontal("since_ns", "queued_ns")).to_series()


def searched_until(waiting: pl.DataFrame, searched: pl.DataFrame) -> pl.DataFrame:
    """`CarryOver.searched` after these gaps."""
    linked = waiting.filter("linked").select(searched.columns)
    return (
        pl.concat([searched, linked])
        .group_by(_TRACK, maintain_order=True)
        .agg(pl.col("h_ns").max())
    )


def host_beyond(waiting: pl.DataFrame, before: CarryOver, searched: pl.DataFrame) -> pl.DataFrame:
    """`CarryOver.host` after these gaps."""
    own = waiting.select(*_TRACK, "start_ns", pl.col("launched_ns").alias("end_ns"))
    both = pl.concat([before.host, own]).join(
        searched, on=_TRACK, how="left", maintain_order="left"
    )
    beyond = (pl.col("end_ns") > pl.col("h_ns")).fill_null(value=True)
    return both.filter(beyond).drop("h_ns")


@dataclass(frozen=True, kw_only=True)
class ChargedStalls:
    """The stalled time of step 3, counted in the covered time of the stalls.

    Attributes:
        ns: how much is charged to each gap.
        charged: `gap`, `begin`, `stop`: which it is.
        left: `device_no`, `process_no`, `begin`, `stop`: what is left for later gaps.
    """

    ns: pl.Series
    charged: pl.DataFrame
    left: pl.DataFrame


def charged_stalls(
    stalled: Cover, axis: Axis, waiting: pl.DataFrame, can_give: pl.Series, carried: CarryOver
) -> ChargedStalls:
    """How much stalled time is charged to each gap, and which.

    Args:
        stalled: when the hosts were in a stall, on `axis`, with lanes as tracks.
        axis: the axis of lanes and of devices.
        waiting: the gaps that the host kept waiting, by device and time: `gap`, `lane`,
            `device_no`, `process_no`, `start_ns`, `launched_ns`, `linked`, `since_ns`, `h_ns`.
        can_give: per gap, how much of its time can be charged to a stall.
        carried: from the slice of gaps before; its `rest` has `lane`.
    """
    rest = carried.rest
    waiting, can_give = _with_those_before(waiting, can_give, rest)
    code = pl.col("device_no").cast(pl.Int64) * (1 << 32) + pl.col("process_no")
    track = dense(waiting.select(code).to_series()).alias("track")
    waiting = waiting.with_row_index("row").with_columns(track)
    pieces = _new_stalled_time(stalled, axis, waiting, carried.host)
    if not rest.is_empty():
        pieces = pl.concat([_opening_pieces(stalled, axis, waiting, rest), pieces])
    length = pieces["stop"] - pieces["begin"]
    before = length.cum_sum() - length
    can_give = waiting.select(pl.when("linked").then(can_give).otherwise(0)).to_series()
    shares = _shares(waiting, can_give, pieces.with_columns(length=length, before=before))
    left = _left(shares, before, pieces["begin"], waiting)
    shares = shares.drop_nulls("gap")
    from_rest = shares.select(
        "gap",
        (pl.col("first") + pl.col("rest") - pl.col("given")).alias("begin"),
        (pl.col("first") + pl.col("rest") - pl.col("given_before")).alias("stop"),
    )
    parts = addressed(before, from_rest)
    shift = pieces["begin"][parts["piece"]]
    return ChargedStalls(
        ns=shares["given"] - shares["given_before"],
        charged=parts.select("gap", pl.col("begin", "stop") + shift),
        left=left,
    )


def _opening_pieces(
    stalled: Cover, axis: Axis, waiting: pl.DataFrame, rest: pl.DataFrame
) -> pl.DataFrame:
    """The pieces of the rest, as `_new_stalled_time` returns those of gaps."""
    begin, stop = _covered_until(stalled, axis, rest)
    opened = rest.select(*_TRACK, begin.alias("begin"), stop.alias("stop"))
    opened = opened.join(waiting.filter(pl.col("gap").is_null()), on=_TRACK)
    return opened.select("row", "begin", "stop").sort("row", maintain_order=True)


def _with_those_before(
    waiting: pl.DataFrame, can_give: pl.Series, rest: pl.DataFrame
) -> tuple[pl.DataFrame, pl.Series]:
    """`waiting` and `can_give`, with a row in front for each track that has a rest. That row stands
    for the gaps of earlier slices."""
    if rest.is_empty():
        return waiting, can_give
    before = (
        rest.select(*_TRACK).unique(maintain_order=True).with_columns(linked=pl.lit(value=True))
    )
    given = repeated(0, len(before), can_give.dtype)
    return pl.concat([before, waiting], how="diagonal"), pl.concat([given, can_give])


def _left(
    shares: pl.DataFrame, before: pl.Series, begin: pl.Series, waiting: pl.DataFrame
) -> pl.DataFrame:
    """The part of each track's rest that is left after its last gap: `device_no`, `process_no`,
    `begin`, `stop`."""
    last = shares.group_by("track", maintain_order=True).last()
    wanted = last.select(
        waiting["device_no"][last["row"]],
        waiting["process_no"][last["row"]],
        pl.col("first").alias("begin"),
        (pl.col("first") + pl.col("rest") - pl.col("given")).alias("stop"),
    )
    parts = addressed(before, wanted)
    shift = begin[parts["piece"]]
    return parts.select(*_TRACK, pl.col("begin", "stop") + shift)


def place_on_lanes(stalled: Cover, left: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    """When covered time was, in order: `device_no`, `process_no`, `lane`, `start_ns`, `end_ns`.

    Args:
        stalled: the cover, with lanes as tracks.
        left: `device_no`, `process_no`, and `begin`, `stop` in the covered time.
        axis: the axis of the lanes.
    """
    parts = addressed(stalled.before, left)
    start = stalled.intervals["start"][parts["piece"]]
    begin, stop = ((start + parts[side]).alias(side) for side in ("begin", "stop"))
    placed = parts.drop("piece", "begin", "stop").hstack([begin, stop])
    start_ns = axis.time_ns(pl.col("begin"))
    return placed.select(
        *_TRACK,
        axis.track(pl.col("begin")).cast(pl.UInt32).alias("lane"),
        start_ns.alias("start_ns"),
        (start_ns + pl.col("stop") - pl.col("begin")).alias("end_ns"),
    )


def _shares(waiting: pl.DataFrame, can_give: pl.Series, pieces: pl.DataFrame) -> pl.DataFrame:
    """How far each gap has used up the rest that it shares with those before it on its track.

    Returns:
        Per gap `rest` (its size when it began) and `first` (its place along all pieces),
        `given_before` and `given` (ns charged to the gaps before, and including this one).
    """
    opened = pieces.group_by("row").agg(
        pl.col("length").sum().alias("rest"), pl.col("before").min().alias("first")
    )
    rows = waiting.select("row", "gap", "track", can_give.alias("can_give")).with_columns(
        repeated(None, len(waiting), pl.Int64).scatter(opened["row"], opened[name]).alias(name)
        for name in ("rest", "first")
    )
    apart = not rows["track"].is_sorted()
    if apart:
        rows = rows.sort("track", "row")
    begins = pl.col("rest").is_not_null() | (pl.col("track") != pl.col("track").shift(1))
    needed = pl.col("can_give").cum_sum()
    # from here on each gap has what the first one of its stretch opened, or nothing
    since = {
        name: pl.when(begins.fill_null(value=True)).then(value).forward_fill()
        for name, value in {
            "rest": pl.col("rest").fill_null(0),
            "first": pl.col("first").fill_null(0),
            "needed_before": needed - pl.col("can_give"),
        }.items()
    }
    shares = rows.with_columns(**since, needed=needed).with_columns(
        pl.col("needed") - pl.col("needed_before")
    )
    shares = shares.with_columns(
        pl.min_horizontal("needed", "rest").alias("given"),
        pl.min_horizontal(pl.col("needed") - pl.col("can_give"), "rest").alias("given_before"),
    )
    return shares.sort("row") if apart else shares


def _new_stalled_time(
    stalled: Cover, axis: Axis, waiting: pl.DataFrame, host: pl.DataFrame
) -> pl.DataFrame:
    """The new stalled time of each gap, in pieces.

    Returns:
        `row` (of `waiting`), `begin` and `stop` in the covered time of `stalled`, in order.
    """
    own = waiting.drop_nulls("gap").select(
        "track", "start_ns", pl.col("launched_ns").alias("end_ns")
    )
    if not host.is_empty():
        tracks = waiting.select(*_TRACK, "track").unique()
        own = pl.concat([host.join(tracks, on=_TRACK).select(own.columns), own])
    host_times = on_axis(own, axis, "track")
    windows = waiting.filter("linked", pl.col("since_ns") < pl.col("h_ns")).select(
        "row", "lane", "track", pl.col("since_ns").alias("start_ns"), pl.col("h_ns").alias("end_ns")
    )
    # most windows have no stalled time at all, and need not be cut at the gaps before them
    begin, stop = _covered_until(stalled, axis, windows)
    windows = windows.filter(stop > begin)
    parts = overlaps(windows.hstack(on_axis(windows, axis, "track")), between(merge(host_times)))
    parts = parts.with_columns(
        axis.time_ns(pl.col("start")).alias("start_ns"), axis.time_ns(pl.col("end")).alias("end_ns")
    )
    begin, stop = _covered_until(stalled, axis, parts)
    pieces = parts.select("row", begin.alias("begin"), stop.alias("stop"))
    return pieces.filter(pl.col("stop") > pl.col("begin"))


def _covered_until(stalled: Cover, axis: Axis, rows: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    """The covered time of `stalled` up to the start and up to the end of rows with a `lane`."""
    on_lanes = on_axis(rows, axis, "lane")
    return stalled.until(on_lanes["start"]), stalled.until(on_lanes["end"])
