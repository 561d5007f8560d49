"""What the host threads behind each gap were doing, instant by instant (spec §3, rules 1 to 3).

A *lane* is the thread of a gap's next launch, or that thread and the one of the previous launch
taken together. Lanes are laid end to end on an axis of their own, and their time is given to calls
and to the code between them once, for all gaps: `HostTime`.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

import polars as pl

from nsysflow.analysis.intervals import (
    Axis,
    Cover,
    flatten,
    last_at_or_before,
    merge,
    reached_before,
)
from nsysflow.analysis.prepare import Prepared
from nsysflow.analysis.schema import CAUSE, STALL_CAUSES

CLAIM: Final = {
    "profiler": 0,
    "sync": 1,
    "blocking_copy": 1,
    "alloc": 2,
    "module_load": 3,
    "launch": 4,
    "api": 5,
}
"""Which of several claims on an instant wins, least first (spec §3, step 2)."""


@dataclass(frozen=True, kw_only=True)
class HostTime:
    """The time of all lanes by cause; places are on `axis`, tracks are lanes.

    Each cover's pieces carry `owner`, a row of the calls (of the overhead for `profiler`), and
    `cause`. The covers are disjoint, but for `launching`, which holds the first four.

    Attributes:
        axis: lanes end to end.
        profiler: the profiler's own work.
        stalled: syncs, blocking copies and allocations.
        module_load: code being loaded.
        launch: launch calls, and api calls within framework dispatch.
        api: other calls, outside framework dispatch.
        launching: launch calls, the framework dispatch between them, and all that lies within.
    """

    axis: Axis
    profiler: Cover
    stalled: Cover
    module_load: Cover
    launch: Cover
    api: Cover
    launching: Cover


def host_time(
    prepared: Prepared, lanes: pl.DataFrame, asked: pl.DataFrame, *, dispatch_ns: int
) -> HostTime:
    """Give every instant of the lanes to what the host did in it.

    Args:
        prepared: the trace.
        lanes: `lane`, `thread_no`, `other_no` (null where a lane is one thread).
        asked: per gap of a two-thread lane `lane`, `window_ns`, `start_ns`, `launched_ns`: the host
            is asked about stalls from `window_ns` on, and about all from `start_ns` to
            `launched_ns`, the next launch included.
        dispatch_ns: the longest stretch between calls that is framework dispatch.
    """
    few = pl.concat([_calls_of_paired_lanes(prepared, lanes, asked), _overhead(prepared, lanes)])
    claims = _calls_of_single_lanes(prepared, lanes).merge_sorted(few.sort("start"), key="start")
    pieces = flatten(claims, rank=partial(_rank, prepared), keep=["owner", "cause"])
    ends_stretch = ~pl.col("cause").is_in(["profiler", "api"])
    dispatched = merge(
        claims.select("start", "end", "cause").filter(ends_stretch), within_ns=dispatch_ns
    )
    pieces = _with_cause(pieces, dispatched)
    cause = pl.col("cause")
    profiler = pieces.filter(cause == "profiler")
    return HostTime(
        axis=prepared.axis,
        profiler=Cover(profiler),
        stalled=Cover(pieces.filter(cause.is_in(list(STALL_CAUSES)))),
        module_load=Cover(pieces.filter(cause == "module_load")),
        launch=Cover(pieces.filter(cause == "launch")),
        api=Cover(pieces.filter(cause == "api")),
        launching=Cover(merge(pl.concat([dispatched, profiler.select("start", "end")]))),
    )


def _rank(prepared: Prepared, claims: pl.DataFrame) -> pl.DataFrame:
    """What orders claims on one instant: class, then the call that started first, then the longer,
    then the smallest correlation."""
    is_call = claims["cause"] != "profiler"
    correlation = prepared.calls["correlation"].gather(claims["owner"].set(~is_call, None))
    length = pl.col("end") - pl.col("start")
    claim = pl.col("cause").replace_strict(CLAIM, return_dtype=pl.UInt8).alias("claim")
    return claims.select(claim, "start", -length.alias("length"), correlation, "owner")


def _with_cause(pieces: pl.DataFrame, dispatched: pl.DataFrame) -> pl.DataFrame:
    """Pieces by cause instead of class: an api call within framework dispatch is `launch`."""
    is_api = pieces["cause"] == "api"
    starts = pieces["start"].filter(is_api)
    stretch = last_at_or_before(dispatched["start"], starts)
    within = (starts < dispatched["end"].gather(stretch)).fill_null(value=False)
    if not within.any():
        return pieces
    rows = is_api.arg_true().filter(within)
    return pieces.with_columns(pieces["cause"].scatter(rows, "launch"))


def _claims(rows: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    """Rows with `lane`, `owner` and `cause` as claims on the lane axis."""
    start = axis.at(pl.col("lane"), pl.col("start_ns"))
    length = pl.col("end_ns") - pl.col("start_ns")
    return rows.select(start.alias("start"), (start + length).alias("end"), "owner", "cause")


def _call_claims(calls: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    return _claims(calls.rename({"call": "owner", "class": "cause"}), axis)


def _overhead(prepared: Prepared, lanes: pl.DataFrame) -> pl.DataFrame:
    """The profiler's work on every thread of every lane; `owner` is its row."""
    both = pl.concat(
        [
            lanes.select("lane", "thread_no"),
            lanes.select("lane", pl.col("other_no").alias("thread_no")).drop_nulls(),
        ]
    )
    rows = prepared.overhead.with_row_index("owner").join(both, on="thread_no")
    return _claims(rows.with_columns(pl.lit("profiler", CAUSE).alias("cause")), prepared.axis)


def _calls_of_single_lanes(prepared: Prepared, lanes: pl.DataFrame) -> pl.DataFrame:
    single = lanes.filter(pl.col("other_no").is_null())
    lane_of_thread = prepared.threads.join(
        single, on="thread_no", how="left", maintain_order="left"
    )["lane"]
    calls = prepared.calls.select(
        *("call", "start_ns", "end_ns", "class"),
        lane_of_thread.gather(prepared.calls["thread_no"]),
    )
    if single.height < prepared.threads.height:
        calls = calls.filter(pl.col("lane").is_not_null())
    return _call_claims(calls, prepared.axis)


def _calls_of_paired_lanes(
    prepared: Prepared, lanes: pl.DataFrame, asked: pl.DataFrame
) -> pl.DataFrame:
    """Calls of two-thread lanes, as far as the gaps ask: any pair of a program's threads may form
    a lane, and with all calls of both threads in each, cost would grow with the threads' square."""
    pairs = lanes.drop_nulls("other_no")
    asked = asked.join(pairs, on="lane", maintain_order="left")
    threads = pl.concat(
        [
            asked.drop("other_no"),
            asked.drop("thread_no")
            .rename({"other_no": "thread_no"})
            .select(asked.drop("other_no").columns),
        ]
    )
    needed = pl.concat(
        [_calls_within(prepared, threads), _last_calls_before(prepared, threads)]
    ).unique()
    calls = prepared.calls[needed["call"]].with_columns(needed["lane"])
    return _call_claims(calls, prepared.axis)


def _calls_within(prepared: Prepared, asked: pl.DataFrame) -> pl.DataFrame:
    """(`lane`, `call`) of the calls that reach into what is asked about."""
    places = _on_thread_axis(prepared, prepared.calls)
    asked = asked.select(
        "lane",
        prepared.axis.at(pl.col("thread_no"), pl.col("window_ns")).alias("start"),
        prepared.axis.at(pl.col("thread_no"), pl.col("launched_ns")).alias("end"),
    )
    first = places["end"].cum_max().search_sorted(asked["start"], side="right")
    past = places["start"].search_sorted(asked["end"], side="right")
    calls = pl.int_ranges(first, past, dtype=pl.UInt32).alias("call")
    return asked.select("lane", calls).explode("call").drop_nulls()


def _last_calls_before(prepared: Prepared, asked: pl.DataFrame) -> pl.DataFrame:
    """(`lane`, `call`) of the latest ending call but api before what is asked about: where the
    stretch that the gap begins in began."""
    calls = prepared.calls.select("call", "class", "thread_no", "start_ns", "end_ns")
    calls = calls.filter(pl.col("class") != "api")
    places = _on_thread_axis(prepared, calls)
    reaches = (pl.col("end") > reached_before(pl.col("end"))).fill_null(value=True)
    row = pl.int_range(pl.len(), dtype=pl.Int64)
    latest = places.select(pl.when(reaches).then(row).forward_fill()).to_series()
    start = asked.select(prepared.axis.at(pl.col("thread_no"), pl.col("start_ns"))).to_series()
    at = latest.gather(last_at_or_before(places["start"], start))
    found = asked.select("lane", "thread_no").with_columns(
        calls["call"].gather(at), calls["thread_no"].gather(at).alias("found_no")
    )
    return found.filter(pl.col("thread_no") == pl.col("found_no")).select("lane", "call")


def _on_thread_axis(prepared: Prepared, calls: pl.DataFrame) -> pl.DataFrame:
    return calls.select(
        prepared.axis.at(pl.col("thread_no"), pl.col("start_ns")).alias("start"),
        prepared.axis.at(pl.col("thread_no"), pl.col("end_ns")).alias("end"),
    )
