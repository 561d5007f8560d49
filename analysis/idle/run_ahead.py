"""Which cause takes which nanoseconds of a gap: the run-ahead model (spec §3)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.causes import CAUSES, IN_CALLS, STALLS
from nsysflow.analysis.events.classes import queue_limit_ns
from nsysflow.analysis.events.events import Calls, Events
from nsysflow.analysis.frames.columns import enum_from_index, repeated
from nsysflow.analysis.frames.intervals import Cover
from nsysflow.analysis.frames.parallel import side_by_side
from nsysflow.analysis.frames.scratch import Scratch
from nsysflow.analysis.idle.charged_stalls import (
    AT_THE_START,
    REST,
    CarryOver,
    charged_stalls,
    host_beyond,
    place_on_lanes,
    searched_until,
    since_last_gap,
)
from nsysflow.analysis.idle.descheduled import PLACED, Delays, delays, place_stretches
from nsysflow.analysis.idle.gaps import BARE_GAPS, GAP_PLACES, BareGaps, with_launches
from nsysflow.analysis.idle.host_time import CallTime, HostTime, Span, between_calls, host_time
from nsysflow.analysis.schema import CAUSE, MOVES_MANAGED_MEMORY

_OF_HOST: Final = ("profiler", "launch", "api", *IN_CALLS)
"""The host's causes other than stalls that have a culprit."""

CAUSED_GAPS: Final = pl.Schema(
    {
        **BARE_GAPS,
        **dict.fromkeys(("queue_delay_ns", "dependency_ns", "unknown_ns"), pl.Int64()),
        **dict.fromkeys(("launch_ns", "host_ns", "profiler_ns", "api_ns"), pl.Int64()),
        **{f"{cause}_ns": pl.Int64() for cause in IN_CALLS},
        **{f"{cause}_by": pl.UInt32() for cause in _OF_HOST},
        **{
            f"{cause}_{suffix}": dtype
            for cause in STALLS
            for suffix, dtype in (("ns", pl.Int64()), ("by", pl.UInt32()))
        },
        "cause": CAUSE,
    }
)
"""A row per gap, with the ns of each cause and the largest `cause`. `<cause>_by` is the row in the
calls (for `profiler` in the overhead) of the call charged most, null where the time between calls
has more."""
CausedGaps = Annotated[pl.DataFrame, CAUSED_GAPS]

GAPS: Final = pl.Schema({**CAUSED_GAPS, **GAP_PLACES})
"""A row per gap, or part of one in a window, with its causes and places."""
Gaps = Annotated[pl.DataFrame, GAPS]

CHARGES: Final = pl.Schema(
    {"gap": pl.UInt32(), "call": pl.UInt32(), "cause": CAUSE, "ns": pl.Int64()}
)
"""What each gap charged to each stall call, steps 2 and 3 together."""
Charges = Annotated[pl.DataFrame, CHARGES]


@dataclass(frozen=True, kw_only=True)
class GapCauses:
    """Gaps with their causes.

    Attributes:
        gaps: `CAUSED_GAPS`.
        charges: `CHARGES`.
        delays: the waits for a CPU in their host code.
        host_side: what the causes of the host were found from; None if it was not to be kept.
    """

    gaps: CausedGaps
    charges: Charges
    delays: Delays
    host_side: "HostSide | None"


@dataclass(frozen=True, kw_only=True)
class HostSide:
    """The host in the gaps that it kept waiting.

    Attributes:
        time: what it did at every instant.
        waiting: these gaps: `gap`, `lane`, `start_ns`, `launched_ns` (where their host time ends),
            `next_no` and `other_no` (the threads of the next launch, and of the one before if that
            is another), and others.
    """

    time: HostTime
    waiting: pl.DataFrame


@dataclass(frozen=True, kw_only=True)
class ExplainedGaps:
    """What `find_causes` makes of some gaps.

    Attributes:
        causes: the gaps with their causes.
        in_calls: by cause, the time of the causes other than stalls that lies inside calls. Only
            the places of idle time are made of it.
        carry_over: what step 3 hands on to the next slice of gaps.
    """

    causes: GapCauses
    in_calls: dict[str, CallTime]
    carry_over: CarryOver


def find_causes(
    events: Events,
    gaps: BareGaps,
    *,
    framework_gap_ns: int,
    keep_host_side: bool = False,
    carry_over: CarryOver = AT_THE_START,
    placed: Annotated[pl.DataFrame | None, PLACED] = None,
    divided: bool = False,
) -> ExplainedGaps:
    """All gaps with their causes.

    Args:
        events: the trace.
        gaps: all of them, or a slice.
        framework_gap_ns: the longest time between two calls that counts as the framework's own.
        keep_host_side: whether to keep `GapCauses.host_side`, which takes memory.
        carry_over: what step 3 hands on from the slice before.
        placed: what is known of waits for a CPU; None where nobody asks for these.
        divided: whether these gaps are a slice. Then calls far from them are left out.
    """
    launched = with_launches(gaps, events.ops).with_columns(_launched())
    limit = queue_limit_ns(events.calls, launched["next_call"])
    pages = _pages(events, gaps)
    gaps = gaps.hstack(launched.with_columns(limit, pages).select(*_queue_parts()))
    on_lanes = _on_lanes(events, _waiting(events, launched, carry_over.searched), carry_over)
    del launched
    calls = _calls_near(events, on_lanes, framework_gap_ns) if divided else events.calls
    asked = _time_asked_for(on_lanes)
    hosts = host_time(events, calls, on_lanes.lanes, asked, framework_gap_ns=framework_gap_ns)
    parts = _host_causes(events, hosts, on_lanes)
    stalls = _stall_causes(events.calls, parts.charges)
    of_pages = gaps.filter(pages).select("gap", host_ns=pl.col("end_ns") - pl.col("start_ns"))
    of_host = pl.concat([parts.of_host, of_pages], how="diagonal")
    of_host = of_host.with_columns(pl.col("^.*_ns$").fill_null(0))
    causes = GapCauses(
        gaps=_with_largest_cause(gaps, [of_host, stalls]),
        charges=parts.charges,
        delays=delays(events, hosts, on_lanes.waiting, placed),
        host_side=HostSide(time=hosts, waiting=on_lanes.waiting) if keep_host_side else None,
    )
    return ExplainedGaps(
        causes=causes,
        in_calls=parts.in_calls,
        carry_over=_carried_on(on_lanes, parts.left, hosts),
    )


def _launched() -> pl.Expr:
    """When the next operation was queued, within the gap: `a` of spec §3."""
    return pl.col("next_end_ns").clip(pl.col("start_ns"), pl.col("end_ns")).alias("launched_ns")


def _pages(events: Events, gaps: BareGaps) -> pl.Series:
    """Whether each gap ends with a copy of managed memory that no call made: `pages`."""
    unlaunched = gaps.select("gap", "next_op").filter(gaps["next_call"].is_null())
    name = events.ops["name"][unlaunched["next_op"]].cast(pl.String)
    found = unlaunched["gap"].filter(name.str.contains(MOVES_MANAGED_MEMORY))
    return gaps["gap"].is_in(found.implode()).alias("pages")


def _queue_parts() -> list[pl.Expr]:
    """Step 1: queue time, also that of operations that are missing, and gaps without a launch."""
    queued = pl.col("end_ns") - pl.col("launched_ns")
    length = pl.col("end_ns") - pl.col("start_ns")
    launched = pl.col("next_call").is_not_null()
    delayed = queued <= pl.col("limit_ns")
    parts = {
        "queue_delay": pl.when(launched & delayed).then(queued),
        "dependency": pl.when(launched & ~delayed & ~pl.col("lacking")).then(queued),
        "unknown": pl.when(~launched & ~pl.col("pages"))
        .then(length)
        .when(~delayed & pl.col("lacking"))
        .then(queued),
    }
    return [ns.fill_null(0).alias(f"{cause}_ns") for cause, ns in parts.items()]


def _waiting(events: Events, gaps: pl.DataFrame, searched: pl.DataFrame) -> pl.DataFrame:
    """The gaps that the host kept waiting, with what steps 2 and 3 need.

    Returns:
        `gap`, `device_no`, `process_no`, `start_ns`, `launched_ns`, `next_start_ns`, `next_no`;
        `linked` (step 3 applies: the launch before was of the same process), `h_ns` and `since_ns`
        (step 3 looks for stalled time in `[since_ns, h_ns)`); and `other_no`, the thread of the
        launch before, if it is another thread of the same process.
    """
    kept_waiting = pl.col("next_call").is_not_null() & (pl.col("launched_ns") > pl.col("start_ns"))
    columns = ["gap", "device_no", "start_ns", "launched_ns", "next_start_ns", "next_no"]
    gaps = gaps.select(*columns, "prev_no", "next_call", kept_waiting.alias("kept")).filter("kept")
    process_of = events.threads["process_no"]
    process = process_of[gaps["next_no"]]
    linked = (process == process_of[gaps["prev_no"]]).fill_null(value=False)
    apart = pl.col("prev_no") != pl.col("next_no")
    h_ns = pl.min_horizontal("start_ns", "next_start_ns")
    waiting = gaps.with_columns(process.alias("process_no"), linked.alias("linked")).select(
        *columns,
        "process_no",
        "linked",
        h_ns.alias("h_ns"),
        pl.when(pl.col("linked") & apart).then("prev_no").alias("other_no"),
    )
    return waiting.with_columns(since_last_gap(waiting, searched, events.first_queued))


@dataclass(frozen=True, kw_only=True)
class _OnLanes:
    """The gaps that the host kept waiting, each on the lane of the threads that it looks at.

    Attributes:
        waiting: of `_waiting`, with `lane`.
        carried: what step 3 hands on from the slice before, its `rest` with `lane`.
        lanes: `lane`, `thread_no`, `other_no` (null for a lane of one thread). Lanes of one thread
            come first, in the order of the threads.
    """

    waiting: pl.DataFrame
    carried: CarryOver
    lanes: pl.DataFrame


def _on_lanes(events: Events, waiting: pl.DataFrame, carried: CarryOver) -> _OnLanes:
    """The lanes of these gaps, and of what is handed on to them."""
    threads = len(events.threads)
    other = (pl.col("other_no").cast(pl.Int64) + 1).fill_null(0) * threads
    code = waiting.select(other + pl.col("next_no")).to_series()
    code_of_rest = carried.rest.select(other + pl.col("thread_no")).to_series()
    codes = pl.concat([code.unique(), code_of_rest.unique()]).unique().sort().alias("code")
    lanes = codes.to_frame().select(
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("lane"),
        (pl.col("code") % threads).cast(pl.UInt32).alias("thread_no"),
        pl.when(pl.col("code") >= threads)
        .then(pl.col("code") // threads - 1)
        .cast(pl.UInt32)
        .alias("other_no"),
    )
    rest = carried.rest.with_columns(codes.search_sorted(code_of_rest).alias("lane"))
    return _OnLanes(
        waiting=waiting.with_columns(codes.search_sorted(code).alias("lane")),
        carried=replace(carried, rest=rest),
        lanes=lanes,
    )


def _time_asked_for(on_lanes: _OnLanes) -> pl.DataFrame:
    """The time that each gap on a lane of two threads needs, and the rest there, as `host_time`
    takes it."""
    single = on_lanes.lanes["other_no"].null_count()
    window = pl.when("linked").then(pl.min_horizontal("since_ns", "start_ns"))
    of_gaps = on_lanes.waiting.filter(pl.col("lane") >= single).select(
        "lane",
        window.otherwise("start_ns").alias("window_ns"),
        "start_ns",
        pl.max_horizontal("launched_ns", "next_start_ns").alias("launched_ns"),
    )
    of_rest = on_lanes.carried.rest.filter(pl.col("other_no").is_not_null()).select(
        "lane",
        pl.col("start_ns").alias("window_ns"),
        "start_ns",
        pl.col("end_ns").alias("launched_ns"),
    )
    return pl.concat([of_gaps, of_rest])


def _calls_near(events: Events, on_lanes: _OnLanes, framework_gap_ns: int) -> pl.DataFrame:
    """The calls that can matter to these gaps: those in their time, those up to `framework_gap_ns`
    before or after it, and the stalls that the rest is part of."""
    waiting, rest = on_lanes.waiting, on_lanes.carried.rest
    begun = waiting.select(pl.when("linked").then(pl.min_horizontal("since_ns", "start_ns")))
    times = pl.concat([begun.to_series(), waiting["start_ns"]])
    ends = waiting.select(pl.max_horizontal("launched_ns", "next_start_ns")).to_series()
    first_ns, last_ns, rest_ns = (
        pl.lit(edge, pl.Int64) for edge in (times.min(), ends.max(), rest["start_ns"].min())
    )
    start, end = pl.col("start_ns"), pl.col("end_ns")
    reach_ns = framework_gap_ns + 1
    near = (end >= first_ns - reach_ns) & (start <= last_ns + reach_ns)
    holding = pl.col("class").is_in(STALLS) & (end >= rest_ns)
    return events.calls.filter(near.fill_null(value=False) | holding.fill_null(value=False))


def _carried_on(on_lanes: _OnLanes, left: pl.DataFrame, hosts: HostTime) -> CarryOver:
    """What step 3 hands on to the next slice of gaps, when these left so much stalled time."""
    waiting, carried = on_lanes.waiting, on_lanes.carried
    searched = searched_until(waiting, carried.searched)
    rest = place_on_lanes(hosts.stalled, left, hosts.axis)
    rest = rest.join(on_lanes.lanes, on="lane", maintain_order="left").select(REST.names())
    return CarryOver(searched=searched, rest=rest, host=host_beyond(waiting, carried, searched))


@dataclass(frozen=True, kw_only=True)
class _HostCauses:
    """Steps 2 and 3 for the gaps that the host kept waiting.

    Attributes:
        of_host: `gap`, `<cause>_ns` and `<cause>_by` of the host's causes without the stalls.
        charges: `CHARGES`.
        in_calls: as `ExplainedGaps.in_calls`.
        left: the stalled time that no gap was charged with: `device_no`, `process_no`, `begin`,
            `stop` in the covered time of the stalls.
    """

    of_host: pl.DataFrame
    charges: Charges
    in_calls: dict[str, CallTime]
    left: pl.DataFrame


def _host_causes(events: Events, hosts: HostTime, on_lanes: _OnLanes) -> _HostCauses:
    """What the host did in each gap, less what stalls before it are charged with."""
    places = _places(hosts, on_lanes.waiting)
    parts, spans = _host_parts(events, hosts, places)
    own = places.select("gap", begin=spans["stall"].begin, stop=spans["stall"].stop)
    giving = ["host_ns", "api_ns", "between_ns", "launch_calls_ns"]
    can_give = parts.select(pl.sum_horizontal(giving)).to_series()
    stalls = charged_stalls(hosts.stalled, hosts.axis, on_lanes.waiting, can_give, on_lanes.carried)
    parts = parts.with_columns(_less([parts[name] for name in giving], stalls.ns))
    inside = {"launch": "launch_calls_ns", "api": "api_ns"} | {c: f"{c}_ns" for c in IN_CALLS}
    in_calls = {
        cause: CallTime.last_of(spans[cause], places["gap"], parts[name][places["row"]])
        for cause, name in inside.items()
    }
    launch_ns = (pl.col("between_ns") + pl.col("launch_calls_ns")).alias("launch_ns")
    return _HostCauses(
        of_host=parts.select("gap", launch_ns, pl.exclude("gap", "between_ns", "launch_calls_ns")),
        charges=_charges(hosts, pl.concat([own, stalls.charged])),
        in_calls=in_calls,
        left=stalls.left,
    )


def _places(hosts: HostTime, waiting: pl.DataFrame) -> pl.DataFrame:
    """`gap`, `row` (in `waiting`), and `start` and `launched` on the axis of lanes.

    In the order of the lanes, so that a look-up walks along instead of searching.
    """
    lane = pl.col("lane")
    on_lanes = [
        hosts.axis.at(lane, pl.col(f"{name}_ns")).alias(name) for name in ("start", "launched")
    ]
    return waiting.with_row_index("row").select("gap", "row", *on_lanes).sort("start")


def _host_parts(
    events: Events, hosts: HostTime, places: pl.DataFrame
) -> tuple[pl.DataFrame, dict[str, Span]]:
    """Step 2: what the host was doing in each gap.

    Returns:
        `gap`, `<cause>_ns` and `<cause>_by` of the host's causes without the stalls, in the order
        of the gaps, `launch` as `between_ns` and `launch_calls_ns`; and the time of the calls of
        each cause inside each of `places`, with `stall` for all stalls.
    """
    start, launched = places["start"], places["launched"]
    covers = hosts.covers
    inside = side_by_side(partial(Span.of, cover, start, launched) for cover in covers.values())
    spans = dict(zip(covers, inside, strict=True))
    host_ns, between_ns = between_calls(
        {name: span.ns for name, span in spans.items()}, launched - start
    )
    begun_ns = events.calls["start_ns"]
    claimed = ("api", *hosts.in_calls)
    leaders: dict[str, Callable[[], pl.Series]] = {
        "profiler": partial(spans["profiler"].leader, events.overhead["start_ns"]),
        "launch": partial(spans["launch"].leader, begun_ns, between_ns),
        **{name: partial(spans[name].leader, begun_ns) for name in claimed},
    }
    parts = {
        "host_ns": host_ns,
        "between_ns": between_ns,
        "launch_calls_ns": spans["launch"].ns,
        **{f"{name}_ns": spans[name].ns for name in ("profiler", *claimed)},
        **dict(zip(map("{}_by".format, leaders), side_by_side(leaders.values()), strict=True)),
    }
    return pl.DataFrame({"gap": places["gap"], **parts}).sort("gap"), spans


def _less(parts: list[pl.Series], x: pl.Series) -> list[pl.Series]:
    """`parts` without `x`, which is taken from the first, then the next, then the last."""
    left = []
    for part in parts:
        left.append((part - x).clip(lower_bound=0))
        x = (x - part).clip(lower_bound=0)
    return left


def _charges(hosts: HostTime, stalled: pl.DataFrame) -> Charges:
    """`CHARGES` of stalled time: `gap`, `begin`, `stop`."""
    return (
        hosts.stalled.slices(stalled)
        .group_by("gap", pl.col("owner").alias("call"), "cause")
        .agg(pl.col("ns").sum())
        .match_to_schema(CHARGES)
    )


def _stall_causes(calls: Calls, charges: Charges) -> pl.DataFrame:
    """Per gap `<cause>_ns` and `<cause>_by` of the stall causes; only gaps that were charged."""
    start = calls["start_ns"][charges["call"]]
    ranked = charges.with_columns(start.alias("start")).sort("gap", -pl.col("ns"), "start", "call")
    cause = pl.col("cause")
    columns = []
    for name in STALLS:
        mine = cause == name
        columns.append(pl.col("ns").filter(mine).sum().alias(f"{name}_ns"))
        columns.append(pl.col("call").filter(mine).first().alias(f"{name}_by"))
    return ranked.group_by("gap", maintain_order=True).agg(columns)


def _with_largest_cause(gaps: pl.DataFrame, parts: list[pl.DataFrame]) -> CausedGaps:
    """`gaps` with their parts, which are 0 where missing, and `cause`."""
    columns = []
    for frame in parts:
        row = frame["gap"] - (gaps["gap"].first() or 0)
        for name in frame.columns[1:]:
            empty = 0 if name.endswith("_ns") else None
            rest = repeated(empty, len(gaps), frame.schema[name])
            columns.append(rest.scatter(row, frame[name]).alias(name))
    whole = gaps.hstack(columns)
    return whole.with_columns(_largest(whole))


def _largest(gaps: pl.DataFrame) -> pl.Series:
    """The `cause` with most of each gap, the first on a tie."""
    there = [cause for cause in CAUSES if gaps[f"{cause}_ns"].max() or cause == next(iter(CAUSES))]
    most = gaps.select(pl.max_horizontal(f"{cause}_ns" for cause in there)).to_series()
    number = pl.coalesce(
        pl.when(pl.col(f"{cause}_ns") == most).then(pl.lit([*CAUSES].index(cause), pl.UInt8))
        for cause in there
    )
    return enum_from_index(gaps.select(number.alias("cause")).to_series(), CAUSE)


def find_causes_in_slices(
    events: Events, gaps: BareGaps, scratch: Scratch, *, framework_gap_ns: int
) -> ExplainedGaps:
    """What `find_causes` makes of all gaps, without the host's side.

    Args:
        events: the trace.
        gaps: all of them.
        scratch: where each slice is kept.
        framework_gap_ns: as for `find_causes`.
    """
    slices = [*_slices(events, gaps, scratch, framework_gap_ns)]
    causes = GapCauses(
        gaps=scratch.joined(part.causes.gaps for part in slices),
        charges=scratch.joined(part.causes.charges for part in slices),
        delays=scratch.joined(part.causes.delays for part in slices),
        host_side=None,
    )
    in_calls = {
        cause: _end_to_end([part.in_calls[cause] for part in slices], scratch)
        for cause in slices[0].in_calls
    }
    return ExplainedGaps(causes=causes, in_calls=in_calls, carry_over=slices[-1].carry_over)


def _slices(
    events: Events, gaps: BareGaps, scratch: Scratch, framework_gap_ns: int
) -> Iterator[ExplainedGaps]:
    """The gaps with their causes, slice by slice."""
    carry_over = AT_THE_START
    placed = place_stretches(events, framework_gap_ns)
    explain = partial(
        find_causes, events, framework_gap_ns=framework_gap_ns, placed=placed, divided=True
    )
    for rows in scratch.slices(gaps):
        part = explain(rows, carry_over=carry_over)
        carry_over = part.carry_over
        yield scratch.kept(part)


def _end_to_end(times: list[CallTime], scratch: Scratch) -> CallTime:
    """The time in calls of all slices. The covered time of each slice begins where that of the one
    before ends."""
    shifts, shift = [], 0
    for time in times:
        shifts.append(shift)
        shift += time.cover.intervals.select((pl.col("end") - pl.col("start")).sum()).item()
    return CallTime(
        cover=Cover(scratch.joined(time.cover.intervals for time in times)),
        spans=scratch.joined(
            time.spans.with_columns(pl.col("begin", "stop") + by)
            for time, by in zip(times, shifts, strict=True)
        ),
    )
