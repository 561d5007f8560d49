"""Which cause takes which nanoseconds of a gap: the run-ahead model (spec §3).

Step 1 parts the gap into host time and queue time, step 2 gives host time to what the host was
doing in it, step 3 charges the stall that had used up the run-ahead.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import polars as pl

from nsysflow.analysis.hosts import HostTime, host_time
from nsysflow.analysis.intervals import Axis, Cover, reached_before
from nsysflow.analysis.numbers import named
from nsysflow.analysis.parallel import side_by_side
from nsysflow.analysis.prepare import Prepared
from nsysflow.analysis.schema import CAUSE, CAUSES, STALL_CAUSES
from nsysflow.analysis.spans import Span

DISPATCH_LIMIT_NS: Final = 10_000
"""An operation that starts within 10 us of being queued was dispatched; later, it depended on
something (spec §3)."""

CULPRIT_CAUSES: Final = ("profiler", *STALL_CAUSES, "module_load", "api", "launch")
"""Causes that can be laid at one call's door; its row is in column `<cause>_by`."""

CHARGES: Final = pl.Schema(
    {"gap": pl.UInt32(), "call": pl.UInt32(), "cause": CAUSE, "ns": pl.Int64()}
)
"""What each gap charged to each stall call, steps 2 and 3 together."""


@dataclass(frozen=True, kw_only=True)
class Explained:
    """Gaps with their causes.

    Attributes:
        gaps: as `find_gaps` returns them, plus `<cause>_ns` of each cause, `cause` (the dominant
            one), and `<cause>_by` of `CULPRIT_CAUSES`: the row in the calls (for `profiler` in the
            overhead) of the call charged most, null where that is the time between calls.
        charges: `CHARGES`.
    """

    gaps: pl.DataFrame
    charges: pl.DataFrame


def explain(prepared: Prepared, gaps: pl.DataFrame, *, dispatch_ns: int) -> Explained:
    """Split every gap among the causes.

    Args:
        prepared: the trace.
        gaps: as `find_gaps` returns them.
        dispatch_ns: the longest stretch between calls that counts as framework dispatch.
    """
    gaps = gaps.with_columns(_launched()).with_columns(*_queue_parts())
    waiting, lanes = _with_lanes(prepared, _waiting(prepared, gaps))
    asked = waiting.filter(pl.col("lane") >= lanes["other_no"].null_count()).select(
        "lane",
        pl.min_horizontal("window_ns", "start_ns").alias("window_ns"),
        "start_ns",
        pl.max_horizontal("launched_ns", "next_start_ns").alias("launched_ns"),
    )
    hosts = host_time(prepared, lanes, asked, dispatch_ns=dispatch_ns)
    parts, charges = _split(prepared, hosts, waiting)
    stalls = _stall_parts(prepared.calls, charges)
    return Explained(gaps=_assembled(gaps, [parts, stalls]), charges=charges)


def _launched() -> pl.Expr:
    """When the next operation was queued, within the gap: `a` of spec §3."""
    return pl.col("next_end_ns").clip(pl.col("start_ns"), pl.col("end_ns")).alias("launched_ns")


def _queue_parts() -> list[pl.Expr]:
    """Step 1: what is queue time, and what nobody can know."""
    queued = pl.col("end_ns") - pl.col("launched_ns")
    soon = queued <= DISPATCH_LIMIT_NS
    known = pl.col("next_call").is_not_null()
    return [
        pl.when(soon).then(queued).otherwise(0).fill_null(0).alias("dispatch_ns"),
        pl.when(~soon).then(queued).otherwise(0).fill_null(0).alias("dependency_ns"),
        pl.when(known).then(0).otherwise(pl.col("end_ns") - pl.col("start_ns")).alias("unknown_ns"),
    ]


def _waiting(prepared: Prepared, gaps: pl.DataFrame) -> pl.DataFrame:
    """The gaps that the host kept waiting, with what steps 2 and 3 ask.

    Returns:
        `gap`, `start_ns`, `launched_ns`, `next_start_ns`, `next_no`; step 3's window `window_ns`
        (null where the step is skipped), `window_end_ns`, and `used_ns` of its stalled time, which
        earlier gaps were charged; and `other_no`, the previous launch's thread where that is
        another one of the same process.
    """
    late = pl.col("next_call").is_not_null() & (pl.col("launched_ns") > pl.col("start_ns"))
    gaps = gaps.select(
        *(
            "gap",
            "device_no",
            "start_ns",
            "launched_ns",
            "next_start_ns",
            "next_no",
            late.alias("late"),
        ),
        *("prev_start_ns", "prev_end_ns", "prev_no", "prev_call", "next_call"),
        _copied_to_host(prepared, gaps["next_op"]).alias("to_host"),
    ).filter("late")
    axis, device = prepared.axis, pl.col("device_no")
    process_of_thread = prepared.threads["process_no"]
    linked = process_of_thread.gather(gaps["next_no"]) == process_of_thread.gather(gaps["prev_no"])
    blocking = prepared.calls["class"] == "blocking_copy"
    blocks = blocking.gather(gaps["prev_call"])
    prev = pl.when(blocks).then("prev_start_ns").otherwise("prev_end_ns")
    gaps = gaps.with_columns(*_charged_before(axis, gaps, blocking))
    begin = axis.time_ns(pl.max_horizontal(axis.at(device, prev), "charged"))
    apart = pl.col("prev_no") != pl.col("next_no")
    return gaps.select(
        *("gap", "start_ns", "launched_ns", "next_start_ns", "next_no", "used_ns"),
        pl.when(linked).then(begin).alias("window_ns"),
        pl.min_horizontal("start_ns", "next_start_ns").alias("window_end_ns"),
        pl.when(linked & apart).then("prev_no").alias("other_no"),
    )


def _copied_to_host(prepared: Prepared, rows: pl.Series) -> pl.Series:
    """Whether each of these rows of the operations is a memcpy to the host."""
    ops = prepared.ops.select("kind", "detail")[rows]
    copy = ops.select(pl.when(pl.col("kind") == "memcpy").then("detail")).to_series()
    return (prepared.trace.copy_details["direction"] == "DtoH").gather(copy)


def _charged_before(axis: Axis, gaps: pl.DataFrame, blocking: pl.Series) -> list[pl.Series]:
    """Up to where on the device axis the host's time is charged to earlier gaps: `charged`.

    The gap just before does not count if it ended with what the previous launch copied to the host,
    and that call had long waited when it began: the 2 us before the operation of a `.cpu()` would
    hide the whole wait. What it was charged is `used_ns`.
    """
    device = pl.col("device_no")
    before = reached_before(axis.at(device, pl.col("launched_ns")))
    own_ns = pl.col("launched_ns") - pl.col("start_ns")
    waited_ns = pl.col("start_ns") - pl.col("next_start_ns")
    copied = blocking.gather(gaps["next_call"]) & gaps["to_host"]
    ended_by = pl.when(copied & (waited_ns > DISPATCH_LIMIT_NS)).then("next_call")
    behind = (ended_by.shift(1) == pl.col("prev_call")) & (device == device.shift(1))
    behind = behind.fill_null(value=False)
    return gaps.select(
        pl.when(behind).then(before.shift(1)).otherwise(before).alias("charged"),
        pl.when(behind).then(own_ns.shift(1)).otherwise(0).alias("used_ns"),
    ).get_columns()


def _with_lanes(prepared: Prepared, waiting: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`waiting` with `lane`; and the lanes: `lane`, `thread_no`, `other_no`, those of one thread
    first, in the order of the threads."""
    threads = len(prepared.threads)
    other = pl.col("other_no").cast(pl.Int64) + 1
    code = waiting.select(other.fill_null(0) * threads + pl.col("next_no")).to_series()
    codes = code.unique().sort().alias("code")
    lanes = codes.to_frame().select(
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("lane"),
        (pl.col("code") % threads).cast(pl.UInt32).alias("thread_no"),
        pl.when(pl.col("code") >= threads)
        .then(pl.col("code") // threads - 1)
        .cast(pl.UInt32)
        .alias("other_no"),
    )
    return waiting.with_columns(codes.search_sorted(code).alias("lane")), lanes


def _split(
    prepared: Prepared, hosts: HostTime, waiting: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Steps 2 and 3 for the gaps that the host kept waiting.

    Returns:
        `gap`, `<cause>_ns` and `<cause>_by` of the host's causes but the stalls'; and
        `Explained.charges`.
    """
    lane = pl.col("lane")
    names = ("start", "launched", "window", "window_end")
    on_lanes = [hosts.axis.at(lane, pl.col(f"{name}_ns")).alias(name) for name in names]
    # In the order of the lanes, so that looking places up is a walk along, not a search.
    places = waiting.select("gap", "used_ns", *on_lanes).sort("start")
    start, launched = places["start"], places["launched"]
    covers = (hosts.profiler, hosts.stalled, hosts.module_load, hosts.launch, hosts.api)
    spans = side_by_side([partial(Span.of, c, start, launched) for c in (*covers, hosts.launching)])
    profiler, stalled, module_load, calls, api, launching = spans
    launch = launching.ns - profiler.ns - stalled.ns - module_load.ns
    host = launched - start - launching.ns - api.ns
    charged = _charged(hosts.stalled, places, host + api.ns + launch)
    begun_ns = prepared.calls["start_ns"]
    leaders: list[Callable[[], pl.Series]]
    leaders = [partial(profiler.leader, prepared.overhead["start_ns"])]
    leaders += [partial(span.leader, begun_ns) for span in (module_load, api)]
    leaders.append(partial(calls.leader, begun_ns, launch - calls.ns))
    by = side_by_side(leaders)
    left = _without([host, api.ns, launch], charged["stop"] - charged["begin"])
    parts = {
        **dict(zip(("host_ns", "api_ns", "launch_ns"), left, strict=True)),
        "profiler_ns": profiler.ns,
        "module_load_ns": module_load.ns,
        **dict(zip(("profiler_by", "module_load_by", "api_by", "launch_by"), by, strict=True)),
    }
    charges = _charges(hosts.stalled, places["gap"], stalled, charged)
    return pl.DataFrame({"gap": places["gap"], **parts}), charges


def _charged(stalled: Cover, places: pl.DataFrame, available: pl.Series) -> pl.DataFrame:
    """Step 3: the last stalled nanoseconds of each window that its gap can take.

    Returns:
        `begin`, `stop`, counted in stalled time.
    """
    window = places["window"].fill_null(places["window_end"])
    stop = stalled.until(places["window_end"])
    stalled_ns = (stop - stalled.until(window) - places["used_ns"]).clip(lower_bound=0)
    found = pl.DataFrame({"stop": stop, "stalled": stalled_ns, "available": available})
    begin = pl.col("stop") - pl.min_horizontal("stalled", "available")
    return found.select(begin.alias("begin"), "stop")


def _without(parts: list[pl.Series], x: pl.Series) -> list[pl.Series]:
    """`parts` after `x` was taken from the first, then the next, then the last."""
    left = []
    for part in parts:
        left.append((part - x).clip(lower_bound=0))
        x = (x - part).clip(lower_bound=0)
    return left


def _charges(stalled: Cover, gap: pl.Series, own: "Span", charged: pl.DataFrame) -> pl.DataFrame:
    """`CHARGES`: the stalls inside each gap, and those charged to it from before it."""
    wanted = pl.concat(
        [
            pl.DataFrame({"gap": gap, "begin": own.begin, "stop": own.stop}),
            charged.select(gap, "begin", "stop"),
        ]
    )
    return (
        stalled.slices(wanted)
        .group_by("gap", pl.col("owner").alias("call"), "cause")
        .agg(pl.col("ns").sum())
        .match_to_schema(CHARGES)
    )


def _stall_parts(calls: pl.DataFrame, charges: pl.DataFrame) -> pl.DataFrame:
    """Per gap `<cause>_ns` and `<cause>_by` of the stall causes; only gaps that were charged."""
    start = calls["start_ns"].gather(charges["call"])
    ranked = charges.with_columns(start.alias("start")).sort("gap", -pl.col("ns"), "start", "call")
    cause = pl.col("cause")
    columns = []
    for name in STALL_CAUSES:
        mine = cause == name
        columns.append(pl.col("ns").filter(mine).sum().alias(f"{name}_ns"))
        columns.append(pl.col("call").filter(mine).first().alias(f"{name}_by"))
    return ranked.group_by("gap", maintain_order=True).agg(columns)


def _assembled(gaps: pl.DataFrame, parts: list[pl.DataFrame]) -> pl.DataFrame:
    """Gaps with the parts of those that have them, and `cause`; the others' are 0."""
    columns = []
    for frame in parts:
        for name in frame.columns[1:]:
            empty = 0 if name.endswith("_ns") else None
            whole = pl.repeat(empty, len(gaps), dtype=frame.schema[name], eager=True)
            columns.append(whole.scatter(frame["gap"], frame[name]).alias(name))
    explained = gaps.hstack(columns)
    most = explained.select(pl.max_horizontal(f"{cause}_ns" for cause in CAUSES)).to_series()
    number = pl.coalesce(
        pl.when(pl.col(f"{cause}_ns") == most).then(pl.lit(index, pl.UInt8))
        for index, cause in enumerate(CAUSES)
    )
    dominant = explained.select(number.alias("cause")).to_series()
    return explained.with_columns(named(dominant, CAUSE))
