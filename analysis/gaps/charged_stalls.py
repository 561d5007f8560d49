"""Which stall used up the run-ahead that a gap lacks (spec §3, step 3).

After a stall the host has no run-ahead left. Work that would have been hidden is exposed, in one
gap or over many. The stalled time since the gap before is the *rest*. A gap takes its share from
the end of the rest and leaves the remainder to the gaps that follow.
"""

import polars as pl

from nsysflow.analysis.frames.intervals import (
    Axis,
    Cover,
    addressed,
    between,
    laid,
    merge,
    overlaps,
)
from nsysflow.analysis.frames.lookup import dense


def since_last_gap(linked: pl.Expr, h_ns: pl.Expr, axis: Axis) -> pl.Expr:
    """The time from which a gap looks for stalled time.

    It is the latest `h_ns` of the gaps before it on its device and of its process; for the first
    gap, the start of the trace.

    Args:
        linked: whether the gap takes part in step 3.
        h_ns: the earlier of the gap's start and of its launch.
        axis: for the start of the trace.
    """
    latest = pl.when(linked).then(h_ns).cum_max().forward_fill().shift(1)
    return latest.over("device_no", "process_no").fill_null(axis.origin_ns)


def charged_stalls(
    stalled: Cover, axis: Axis, waiting: pl.DataFrame, can_give: pl.Series
) -> tuple[pl.Series, pl.DataFrame]:
    """How much stalled time is charged to each gap, and which.

    Args:
        stalled: when the hosts were in a stall, on `axis`, with lanes as tracks.
        axis: the axis of lanes and of devices.
        waiting: the gaps that the host kept waiting, by device and time: `gap`, `lane`,
            `device_no`, `process_no`, `start_ns`, `launched_ns`, `linked`, `since_ns`, `h_ns`.
        can_give: per gap, how much of its time can be charged to a stall.

    Returns:
        ns charged to each gap; and `gap`, `begin`, `stop` of the covered time of `stalled` that was
        charged.
    """
    code = pl.col("device_no").cast(pl.Int64) * (1 << 32) + pl.col("process_no")
    track = dense(waiting.select(code).to_series()).alias("track")
    waiting = waiting.with_row_index("row").with_columns(track)
    pieces = _new_stalled_time(stalled, axis, waiting)
    length = pieces["stop"] - pieces["begin"]
    before = length.cum_sum() - length
    can_give = waiting.select(pl.when("linked").then(can_give).otherwise(0)).to_series()
    shares = _shares(waiting, can_give, pieces.with_columns(length=length, before=before))
    taken = (shares["given"] - shares["given_before"]).alias("taken")
    from_rest = shares.select(
        "gap",
        (pl.col("first") + pl.col("rest") - pl.col("given")).alias("begin"),
        (pl.col("first") + pl.col("rest") - pl.col("given_before")).alias("stop"),
    )
    parts = addressed(before, from_rest)
    shift = pieces["begin"].gather(parts["piece"])
    return taken, parts.select("gap", pl.col("begin", "stop") + shift)


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
        pl.repeat(None, len(waiting), dtype=pl.Int64, eager=True)
        .scatter(opened["row"], opened[name])
        .alias(name)
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


def _new_stalled_time(stalled: Cover, axis: Axis, waiting: pl.DataFrame) -> pl.DataFrame:
    """The new stalled time of each gap, in pieces.

    Returns:
        `row` (of `waiting`), `begin` and `stop` in the covered time of `stalled`, in order.
    """
    host_times = laid(waiting.rename({"launched_ns": "end_ns"}), axis, "track")
    windows = waiting.filter("linked", pl.col("since_ns") < pl.col("h_ns")).select(
        "row", "lane", "track", pl.col("since_ns").alias("start_ns"), pl.col("h_ns").alias("end_ns")
    )
    # most windows have no stalled time at all, and need not be cut at the gaps before them
    begin, stop = _covered_until(stalled, axis, windows)
    windows = windows.filter(stop > begin)
    parts = overlaps(windows.hstack(laid(windows, axis, "track")), between(merge(host_times)))
    parts = parts.with_columns(
        axis.time_ns(pl.col("start")).alias("start_ns"), axis.time_ns(pl.col("end")).alias("end_ns")
    )
    begin, stop = _covered_until(stalled, axis, parts)
    pieces = parts.select("row", begin.alias("begin"), stop.alias("stop"))
    return pieces.filter(pl.col("stop") > pl.col("begin"))


def _covered_until(stalled: Cover, axis: Axis, rows: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    """The covered time of `stalled` up to the start and up to the end of rows with a `lane`."""
    on_lanes = laid(rows, axis, "lane")
    return stalled.until(on_lanes["start"]), stalled.until(on_lanes["end"])
