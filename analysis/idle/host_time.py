"""What the host threads behind each gap were doing, instant by instant (spec §3.5 to §3.8)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

import polars as pl

from nsysflow.analysis.causes import CAUSES, IN_CALLS, STALLS
from nsysflow.analysis.events.events import Calls, Events
from nsysflow.analysis.frames.columns import repeated, scatter_table
from nsysflow.analysis.frames.intervals import (
    Axis,
    Cover,
    between,
    flatten,
    last_at_or_before,
    merge,
    on_axis,
    overlaps,
    reached_before,
    rows_at_or_before,
)
from nsysflow.analysis.schema import CAUSE

CLAIM: Final = {cause.name: cause.claim for cause in CAUSES.values() if cause.claim is not None}
"""The rank of claims on an instant; the lowest wins (spec §3.6)."""


@dataclass(frozen=True, kw_only=True)
class HostTime:
    """The time of all lanes by cause; places are on `axis`, tracks are lanes.

    Each piece carries `cause` and `owner`, a row of the calls (of the overhead for `profiler`). The
    covers are disjoint, except `launching`, which contains all of the others but `api`.

    Attributes:
        axis: lanes end to end.
        profiler: the profiler's own work.
        stalled: syncs, blocking copies and allocations.
        launch: launch calls.
        in_calls: the calls of each cause of `IN_CALLS`, such as code being loaded.
        api: other calls, outside framework gaps.
        launching: launch calls, the framework gaps between them, and everything inside.
    """

    axis: Axis
    profiler: Cover
    stalled: Cover
    launch: Cover
    in_calls: dict[str, Cover]
    api: Cover
    launching: Cover

    @property
    def covers(self) -> dict[str, Cover]:
        """All covers by name; `stall` is that of all stalls."""
        return {
            "profiler": self.profiler,
            "stall": self.stalled,
            "launch": self.launch,
            "api": self.api,
            "launching": self.launching,
            **self.in_calls,
        }


def between_calls(ns: Mapping[str, pl.Series], length: pl.Series) -> tuple[pl.Series, pl.Series]:
    """How much of some intervals lies between calls: the application's time, and framework gaps.

    Args:
        ns: how much of each interval each of `HostTime.covers` has, by its name.
        length: how long each interval is.
    """
    within = [ns[name] for name in ("profiler", "stall", "launch", *IN_CALLS)]
    return length - ns["launching"] - ns["api"], ns["launching"] - sum(within)


_SECOND: Final = 1 << 33
"""In `order`, the thread of the next launch comes after that of the previous one, and after all
tiles of that."""


def cut_host_time(events: Events, waiting: pl.DataFrame, tiles: pl.DataFrame) -> pl.DataFrame:
    """The host time of each gap, cut at the borders of tiles of the thread that it looks at.

    Args:
        events: the trace.
        waiting: the gaps that the host kept waiting, as `HostSide` has them.
        tiles: `start`, `end` on the axis of threads, end to end, sorted.

    Returns:
        `gap`, `thread_no`, `order` (that of the threads), `tile` (a row of `tiles`), and `start`
        and `end` on the axis of lanes, in order.
    """
    asked, axis = _threads_asked(events, waiting), events.axis
    cut = overlaps(asked.hstack(on_axis(asked, axis, "thread_no")), tiles)
    start = axis.at(pl.col("lane"), axis.time_ns(pl.col("start")))
    return cut.select(
        "gap",
        "thread_no",
        "order",
        pl.col("other").alias("tile"),
        start.alias("start"),
        (start + pl.col("end") - pl.col("start")).alias("end"),
    ).sort("start")


def _threads_asked(events: Events, waiting: pl.DataFrame) -> pl.DataFrame:
    """Which thread each gap looks at when: `gap`, `lane`, `thread_no`, `order`, `start_ns`,
    `end_ns`.

    That is the thread of the launch before, up to the first call of the next launch's thread that
    ends in the gap, and then this thread.
    """
    axis, calls = events.axis, events.calls
    reached = calls.select(axis.at(pl.col("thread_no"), pl.col("end_ns")).cum_max()).to_series()
    gap_start = axis.at(waiting["next_no"], waiting["start_ns"])
    first = calls["start_ns"][reached.search_sorted(gap_start, side="right")]
    begun = first.alias("begun_ns").to_frame()
    waiting = waiting.hstack(begun).with_columns(
        pl.when(pl.col("other_no").is_null())
        .then("start_ns")
        .otherwise(pl.col("begun_ns").clip("start_ns", "launched_ns"))
        .alias("begun_ns")
    )
    start, middle, end = pl.col("start_ns"), pl.col("begun_ns"), pl.col("launched_ns")
    threads = [
        waiting.select(
            "gap",
            "lane",
            pl.col(thread).alias("thread_no"),
            pl.lit(order, pl.Int64).alias("order"),
            begin.alias("start_ns"),
            stop.alias("end_ns"),
        )
        for thread, order, begin, stop in (
            ("other_no", 0, start, middle),
            ("next_no", _SECOND, middle, end),
        )
    ]
    return pl.concat(threads).filter(pl.col("end_ns") > pl.col("start_ns"))


def host_time(
    events: Events,
    calls: Calls,
    lanes: pl.DataFrame,
    asked: pl.DataFrame,
    *,
    framework_gap_ns: int,
) -> HostTime:
    """What the host did at every instant of the lanes.

    Args:
        events: the trace.
        calls: those of `events.calls` that can matter.
        lanes: `lane`, `thread_no`, `other_no` (null where a lane is one thread).
        asked: for lanes of two threads, the time that each gap needs: `lane`, `window_ns` (stalls
            count from here), `start_ns` to `launched_ns` (everything counts).
        framework_gap_ns: the longest time between two calls that is the framework's own.
    """
    paired = _calls_of_paired_lanes(events.axis, calls, lanes, asked)
    few = pl.concat([paired, _overhead(events, lanes)])
    claims = _calls_of_single_lanes(events, calls, lanes).merge_sorted(
        few.sort("start"), key="start"
    )
    pieces = flatten(claims, rank=partial(_rank, events), keep=["owner", "cause"])
    ends_stretch = ~pl.col("cause").is_in(["profiler", "api"])
    bridged = merge(
        claims[["start", "end", "cause"]].filter(ends_stretch), within_ns=framework_gap_ns
    )
    by_cause = dict.fromkeys(CAUSES, pieces.clear())
    by_cause |= {cause: rows for (cause,), rows in pieces.group_by("cause", maintain_order=True)}
    profiler = by_cause["profiler"]
    return HostTime(
        axis=events.axis,
        profiler=Cover(profiler),
        stalled=Cover(pieces.filter(pl.col("cause").is_in(list(STALLS)))),
        launch=Cover(by_cause["launch"]),
        in_calls={name: Cover(by_cause[name]) for name in IN_CALLS},
        api=Cover(_outside(by_cause["api"], bridged)),
        launching=Cover(merge(pl.concat([bridged, profiler[["start", "end"]]]))),
    )


def _rank(events: Events, claims: pl.DataFrame) -> pl.DataFrame:
    """The order of claims on one instant: class, earlier start, longer call, smaller id."""
    is_call = claims["cause"] != "profiler"
    correlation = events.calls["correlation"][claims["owner"].set(~is_call, None)]
    length = pl.col("end") - pl.col("start")
    claim = pl.col("cause").replace_strict(CLAIM, return_dtype=pl.UInt8).alias("claim")
    return claims.select(claim, "start", -length.alias("length"), correlation, "owner")


def _outside(pieces: pl.DataFrame, stretches: pl.DataFrame) -> pl.DataFrame:
    """The parts of the pieces outside all stretches.

    A stretch begins or ends inside a piece only at a call of no length. Such calls are rare.
    Without them, whole pieces are kept or dropped, in a quarter of the time.
    """
    rest = between(stretches)
    at = last_at_or_before(rest["start"], pieces["start"])
    outside = pieces["start"] < rest["end"][at]
    until = rest["end"][at].zip_with(outside, rest["start"].shift(-1)[at])
    if (pieces["end"] > until).any():
        return overlaps(pieces, rest).drop("other")
    return pieces.filter(outside)


def _claims(rows: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    """Rows with `lane`, `owner` and `cause` as claims on the lane axis."""
    start = axis.at(pl.col("lane"), pl.col("start_ns"))
    length = pl.col("end_ns") - pl.col("start_ns")
    return rows.select(start.alias("start"), (start + length).alias("end"), "owner", "cause")


def _call_claims(calls: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    return _claims(calls.rename({"call": "owner", "class": "cause"}), axis)


def _overhead(events: Events, lanes: pl.DataFrame) -> pl.DataFrame:
    """The profiler's work on every thread of every lane; `owner` is its row."""
    both = pl.concat(
        [
            lanes[["lane", "thread_no"]],
            lanes.select("lane", pl.col("other_no").alias("thread_no")).drop_nulls(),
        ]
    )
    rows = events.overhead.with_row_index("owner").join(both, on="thread_no")
    return _claims(rows.with_columns(pl.lit("profiler", CAUSE).alias("cause")), events.axis)


def _calls_of_single_lanes(events: Events, calls: Calls, lanes: pl.DataFrame) -> pl.DataFrame:
    single = lanes.filter(pl.col("other_no").is_null())
    lane_of_thread = events.threads.join(single, on="thread_no", how="left", maintain_order="left")[
        "lane"
    ]
    calls = calls.select(
        *("call", "start_ns", "end_ns", "class"),
        lane_of_thread[calls["thread_no"]],
    )
    if single.height < events.threads.height:
        calls = calls.filter(pl.col("lane").is_not_null())
    return _call_claims(calls, events.axis)


def _calls_of_paired_lanes(
    axis: Axis, calls: Calls, lanes: pl.DataFrame, asked: pl.DataFrame
) -> pl.DataFrame:
    """Calls of two-thread lanes, only those that a gap needs.

    Any two threads may form a lane; with all calls of both in each, the cost would grow with the
    square of the threads.
    """
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
        [_calls_within(axis, calls, threads), _last_calls_before(axis, calls, threads)]
    ).unique()
    return _call_claims(calls[needed["row"]].with_columns(needed["lane"]), axis)


def _calls_within(axis: Axis, calls: Calls, asked: pl.DataFrame) -> pl.DataFrame:
    """`lane`, `row` of the calls that reach into the time that a gap needs."""
    places = _on_thread_axis(axis, calls)
    asked = asked.select(
        "lane",
        axis.at(pl.col("thread_no"), pl.col("window_ns")).alias("start"),
        axis.at(pl.col("thread_no"), pl.col("launched_ns")).alias("end"),
    )
    first = places["end"].cum_max().search_sorted(asked["start"], side="right")
    past = places["start"].search_sorted(asked["end"], side="right")
    rows = pl.int_ranges(first, past, dtype=pl.UInt32).alias("row")
    return asked.select("lane", rows).explode("row").drop_nulls()


def _last_calls_before(axis: Axis, calls: Calls, asked: pl.DataFrame) -> pl.DataFrame:
    """`lane`, `row` of the last non-`api` call that ended before each gap."""
    calls = calls[["class", "thread_no", "start_ns", "end_ns"]].with_row_index("row")
    calls = calls.filter(pl.col("class") != "api")
    places = _on_thread_axis(axis, calls)
    reaches = (pl.col("end") > reached_before(pl.col("end"))).fill_null(value=True)
    row = pl.int_range(pl.len(), dtype=pl.Int64)
    latest = places.select(pl.when(reaches).then(row).forward_fill()).to_series()
    start = axis.at(asked["thread_no"], asked["start_ns"])
    at = latest[last_at_or_before(places["start"], start)]
    calls_before = asked[["lane", "thread_no"]].with_columns(
        calls["row"].gather(at), calls["thread_no"].gather(at).alias("found_no")
    )
    return calls_before.filter(pl.col("thread_no") == pl.col("found_no"))[["lane", "row"]]


def _on_thread_axis(axis: Axis, calls: pl.DataFrame) -> pl.DataFrame:
    return calls.select(
        axis.at(pl.col("thread_no"), pl.col("start_ns")).alias("start"),
        axis.at(pl.col("thread_no"), pl.col("end_ns")).alias("end"),
    )


@dataclass(frozen=True)
class Span:
    """The covered time inside each gap's host time, `[begin, stop)` counted in covered time."""

    cover: Cover
    begin: pl.Series
    stop: pl.Series

    @classmethod
    def of(cls, cover: Cover, start: pl.Series, end: pl.Series) -> Self:
        """The span of each `[start, end)`."""
        return cls(cover, cover.until(start), cover.until(end))

    @property
    def ns(self) -> pl.Series:
        return self.stop - self.begin

    def leader(self, begun_ns: pl.Series, between_ns: pl.Series | None = None) -> pl.Series:
        """The row of the call that has most of each span; the earliest on a tie.

        Null if no call has any, or if the time between calls has more.

        Args:
            begun_ns: when each call began, by row.
            between_ns: the time between calls in each span.
        """
        # If the last piece has more than half, the others do not matter. That is true
        # of most launches (the other calls of a gap are short look-ups), and cheap to see.
        total = pl.col("stop") - pl.col("begin")
        spans = pl.DataFrame({"begin": self.begin, "stop": self.stop}).with_columns(
            (between_ns if between_ns is not None else pl.lit(0, pl.Int64)).alias("between")
        )
        # of most causes few gaps have any, so that the others are left at once
        spans = spans.with_row_index("row").filter(total > 0, pl.col("between") <= total)
        if spans.is_empty():
            return repeated(None, len(self.begin), pl.UInt32)
        before = self.cover.before
        pieces = self.cover.intervals.select("owner", before.alias("before"), before.alias("ends"))
        last = rows_at_or_before(pieces, "ends", spans["stop"] - 1)
        spans = spans.hstack(last[["before", "owner"]])
        last_ns = pl.col("stop") - pl.max_horizontal("begin", "before")
        clear = (2 * last_ns > total) & (pl.col("between") <= last_ns)
        led, others = spans.filter(clear)[["row", "owner"]], spans.filter(~clear)
        if not others.is_empty():
            led = pl.concat([led, self._contest(others, begun_ns)])
        return scatter_table(len(self.begin), led["row"], led["owner"])

    def _contest(self, spans: pl.DataFrame, begun_ns: pl.Series) -> pl.DataFrame:
        """`row` and `owner` of the spans in which one call has at least `between`."""
        pieces = self.cover.slices(spans[["row", "between", "begin", "stop"]])
        calls = pieces.group_by("row", "owner").agg(pl.col("ns").sum(), pl.col("between").first())
        calls = calls.filter(pl.col("ns") >= pl.col("between"))
        return (
            calls.with_columns(begun_ns[calls["owner"]].alias("begun"))
            .sort("row", -pl.col("ns"), "begun", "owner")
            .unique("row", keep="first", maintain_order=True)
            .select("row", "owner")
        )


@dataclass(frozen=True, kw_only=True)
class CallTime:
    """The idle time of one cause inside calls.

    Attributes:
        cover: when such calls ran, on the axis of lanes; `owner` is the call.
        spans: `gap`, `begin`, `stop` in the covered time of `cover`, only where a gap has any.
    """

    cover: Cover
    spans: pl.DataFrame

    @classmethod
    def last_of(cls, span: Span, gap: pl.Series, ns: pl.Series) -> Self:
        """The last `ns` of each gap's span: what is left when step 3 has taken the earlier ones."""
        spans = pl.DataFrame({"gap": gap, "begin": span.stop - ns, "stop": span.stop})
        return cls(cover=span.cover, spans=spans.filter(pl.col("stop") > pl.col("begin")))

    @property
    def calls(self) -> pl.Series:
        """Every call of the cover; several times where it has several parts."""
        return self.cover.intervals["owner"]

    def places(self, path_of_call: pl.Series) -> pl.DataFrame:
        """`gap`, `inside_ns`, `path`, and `several`: whether the calls have other paths too."""
        before = self.cover.before
        path = path_of_call[self.calls].alias("path")
        run = path.to_frame().select(pl.col("path").rle_id()).to_series()
        first, last = (
            last_at_or_before(before, at) for at in (self.spans["begin"], self.spans["stop"] - 1)
        )
        return self.spans.select(
            "gap",
            (pl.col("stop") - pl.col("begin")).alias("inside_ns"),
            path[last],
            (run[first] != run[last]).alias("several"),
        )

    def calls_in(self, gaps: pl.Series) -> pl.DataFrame:
        """The time of each call in these gaps: `gap`, `call`, `ns`."""
        wanted = self.spans.filter(pl.col("gap").is_in(gaps.implode()))
        pieces = self.cover.slices(wanted)
        return pieces.group_by("gap", pl.col("owner").alias("call")).agg(pl.col("ns").sum())
