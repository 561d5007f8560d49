"""What a call waits for: the call before it, an operation, room in the queue (spec §14)."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import polars as pl

from nsysflow.analysis.causes import RUNTIME
from nsysflow.analysis.events.events import Events, Threads
from nsysflow.analysis.events.lost_launches import MOST_QUEUED
from nsysflow.analysis.frames.columns import matching, median_ns, repeated, scatter_table
from nsysflow.analysis.frames.intervals import reached_before

MOST_TURNS: Final = 0.2
"""Two threads hand over to each other if their turns are at most a fifth of the calls of the one
with fewer. Threads that work side by side take turns all the time."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """The calls that the replay knows.

    Attributes:
        calls: sorted by thread and start: `node` (row number), `call` (row in the events), `name`,
            `class`, `thread_no`, `process_no`, `team` (threads that hand over to each other share
            one), `start_ns`, `end_ns`, `pred` (the node after whose end it comes; null for the
            first), `before` (the one before it on its thread), `span_ns` (from the end of `pred` to
            its start; of the first one its start), `work_ns` (what of that the host works),
            `batch_ns` (how long it waits in it for a batch that another process makes; null if it
            does not), `paced` (whether that comes when it came in the recording, and not as long
            after it was asked for), `fed_after` (the node that used the batch before the one that
            this node uses; null if it uses none), `feed_ns` (how long after that node starts
            workers have the next batch), `asked_ns`, `fed_ns` (when the loop asked for the batch,
            and had it), `cost_ns` (what the call itself takes).
        node_of_call: for each call of the events its node, that of the call around it, or null.
    """

    calls: pl.DataFrame
    node_of_call: pl.Series


def host_calls(events: Events) -> Host:
    """The outermost calls that launch, wait or allocate; other calls count as the host's work."""
    outer, holder = outermost(events)
    launching = holder[events.ops["call"].drop_nulls().unique()]
    acts = (events.calls["class"][outer] != "api").scatter(launching, values=True)
    kept = outer.filter(acts)
    node_of_outer = pl.select(
        pl.when(pl.lit(acts)).then(pl.lit(acts).cast(pl.UInt32).cum_sum() - 1)
    ).to_series()
    columns = ["call", "name", "class", "thread_no", "start_ns", "end_ns"]
    calls = events.calls.select(columns)[kept].with_columns(
        events.threads["process_no"][events.calls["thread_no"][kept]],
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("node"),
        (pl.col("end_ns") - pl.col("start_ns")).alias("cost_ns"),
    )
    return Host(
        calls=_with_predecessors(calls, events.threads),
        node_of_call=node_of_outer[holder],
    )


def outermost(events: Events) -> tuple[pl.Series, pl.Series]:
    """The rows of the calls that lie in no other of their thread; and which of them each call lies
    in, or is."""
    place = events.axis.at(pl.col("thread_no"), pl.col("start_ns"))
    end = place + pl.col("end_ns") - pl.col("start_ns")
    opens = events.calls.select(
        (place >= reached_before(end)).fill_null(value=True).alias("opens")
    ).to_series()
    return opens.arg_true(), opens.cast(pl.UInt32).cum_sum() - 1


def _with_predecessors(calls: pl.DataFrame, threads: Threads) -> pl.DataFrame:
    """`calls` plus `team`, `pred` and `work_ns`."""
    same = pl.col("thread_no") == pl.col("thread_no").shift(1)
    before = pl.when(same).then(pl.col("node").shift(1))
    calls = calls.with_columns(before.alias("before"), before.alias("pred"))
    pairs = list(_handing_over(calls, threads))
    for first, other in pairs:
        for mine, theirs in ((first, other), (other, first)):
            calls = _after_the_later(calls, mine, theirs)
    end_ns = calls["end_ns"][calls["pred"]]
    span_ns = pl.col("start_ns") - pl.lit(end_ns).fill_null(0)
    return calls.with_columns(
        span_ns.alias("span_ns"),
        span_ns.alias("work_ns"),
        pl.lit(None, pl.Int64).alias("batch_ns"),
        pl.lit(value=True).alias("paced"),
        pl.lit(None, pl.UInt32).alias("fed_after"),
        pl.lit(None, pl.Int64).alias("feed_ns"),
        pl.lit(None, pl.Int64).alias("asked_ns"),
        pl.lit(None, pl.Int64).alias("fed_ns"),
        _teams(pairs, len(threads))[calls["thread_no"]].alias("team"),
    )


def _handing_over(calls: pl.DataFrame, threads: Threads) -> Iterator[tuple[int, int]]:
    """Pairs of threads of a process of which one goes on where the other stopped."""
    order = calls.sort("start_ns", "node").select("thread_no").with_row_index("place")
    places = {thread: rows["place"] for (thread,), rows in order.group_by("thread_no")}
    about = threads.filter(pl.col("thread_no").is_in([*places])).sort("thread_no")
    kind = pl.when("autograd").then(1).when("main").then(2).otherwise(0).alias("kind")
    for _, group in about.group_by("process_no", maintain_order=True):
        kinds = dict(group.select("thread_no", kind).rows())
        for first, other in combinations(kinds, 2):
            backward = {kinds[first], kinds[other]} == {1, 2}
            most = MOST_TURNS * min(len(places[first]), len(places[other]))
            if backward or (most >= 1 and _turns(places[first], places[other]) <= most):
                yield first, other


def _turns(first: pl.Series, other: pl.Series) -> int:
    """How often the calls of two threads change from one to the other: at least once.

    Args:
        first: the places of the calls of one among all calls, by start.
        other: those of the other one.
    """
    behind = other.search_sorted(first)
    begins, ends = behind[0] > 0, behind[-1] < len(other)
    return 2 * (behind.n_unique() - 1) + int(begins) + int(ends)


def _after_the_later(calls: pl.DataFrame, mine: int, theirs: int) -> pl.DataFrame:
    """`calls` with `pred` of thread `mine` on thread `theirs` where that call ended later."""
    ended = calls.filter(pl.col("thread_no") == theirs).select("end_ns", other="node")
    asked = calls.filter(pl.col("thread_no") == mine).select("node", "pred", time_ns="start_ns")
    joined = asked.join_asof(
        ended, left_on="time_ns", right_on="end_ns", check_sortedness=False
    ).with_columns(
        calls["end_ns"][asked["pred"]].alias("mine_ns"),
    )
    ended_ns = calls["end_ns"][joined["other"]]
    later = (ended_ns > joined["mine_ns"]).fill_null(value=False) | joined["pred"].is_null()
    pred = joined.select(pl.when(later).then("other").otherwise("pred")).to_series()
    return calls.with_columns(calls["pred"].scatter(joined["node"], pred))


def _teams(pairs: list[tuple[int, int]], threads: int) -> pl.Series:
    """Per thread the smallest of those that it hands over to, directly or not."""
    team = list(range(threads))
    for first, other in pairs:
        joined, gone = sorted((team[first], team[other]))
        team = [joined if mine == gone else mine for mine in team]
    return pl.Series("team", team, dtype=pl.UInt32)


FREES: Final = r"^(?:cudaFree|cuMemFree|hip(?:Host)?Free)"
"""Calls that wait for the GPU before they free memory; `…Async` ones do not."""

EVENT_SYNC: Final = f"^{RUNTIME}EventSynchronize$"


def with_waits(calls: pl.DataFrame, ops: pl.DataFrame, named: pl.DataFrame) -> pl.DataFrame:
    """`calls` plus `after`, the operation that each waits for (null without), and `after_ns`, from
    its end to the call's; `cost_ns` becomes what the call takes without waiting.

    Args:
        calls: of `Host`.
        ops: `operations.PLACED`.
        named: of `event_waits`, with `node` for `call`.
    """
    for_event = matching(calls["name"], EVENT_SYNC)
    frees = matching(calls["name"], FREES) & ~matching(calls["name"], "Async")
    waiting = calls.with_columns(for_event.alias("for_event"), frees.alias("frees"))
    waiting = waiting.filter((pl.col("class") == "sync") | pl.col("frees"))
    waiting = waiting[["node", "process_no", "start_ns", "end_ns", "for_event"]]
    waiting = waiting.join(named, on="node", how="left")
    recorded = pl.col("record_op").is_not_null()
    waits = pl.concat(
        [
            _own_operation(calls, ops),
            waiting.filter(recorded).select("node", op="record_op"),
            _latest_ended(waiting.filter("for_event", ~recorded), ops),
            _stream_tails(waiting.filter(~pl.col("for_event"), ~recorded), ops),
        ]
    )
    return _with_latest(calls, waits, ops["end_ns"])


HIP_CLOCK_SKEW_NS: Final = 10_000
"""An AMD GPU's times may be so much later than the host's: in a trace of an MI300X each of five
copies that the host waited for ended 1.8 to 3.7 us after the call had returned."""


def _with_latest(calls: pl.DataFrame, waits: pl.DataFrame, ends: pl.Series) -> pl.DataFrame:
    """`calls` with the latest-ending of the operations found, of those that ended by its return."""
    copies = (pl.col("class") == "blocking_copy") & matching(calls["name"], r"^hip")
    skew_ns = pl.when(copies).then(HIP_CLOCK_SKEW_NS).otherwise(0)
    returned = calls.select(pl.col("end_ns") + skew_ns).to_series()[waits["node"]]
    latest = (
        waits.with_columns(ends[waits["op"]].alias("done_ns"))
        .filter(pl.col("done_ns") <= returned)
        .sort("done_ns", "op")
        .unique("node", keep="last", maintain_order=True)
    )
    after = repeated(None, len(calls), pl.UInt32)
    after = after.scatter(latest["node"], latest["op"]).alias("after")
    begun = pl.max_horizontal("start_ns", pl.lit(ends[after]))
    calls = calls.with_columns(after)
    after_ns = pl.when(pl.col("after").is_not_null()).then(pl.col("end_ns") - begun)
    return calls.with_columns(after_ns.alias("after_ns")).with_columns(
        pl.coalesce("after_ns", "cost_ns").alias("cost_ns")
    )


def _own_operation(calls: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Blocking copies with the operations that they launched."""
    copies = calls.filter(pl.col("class") == "blocking_copy")[["node"]]
    return ops[["node", "op"]].join(copies, on="node", how="semi")


def _latest_ended(waiting: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Waits for an event that nothing names, with the latest operation of the process that had
    ended when they returned."""
    ended = ops.select("process_no", "op", done_ns="end_ns").sort("done_ns")
    latest = waiting.sort("end_ns").join_asof(
        ended, left_on="end_ns", right_on="done_ns", by="process_no", check_sortedness=False
    )
    return latest[["node", "op"]].drop_nulls()


def _stream_tails(waiting: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Waits for streams, with the last operation launched on each stream before the call."""
    launched = ops.filter(pl.col("node").is_not_null())[
        ["process_no", "stream_no", "op", "end_ns", "launch_start_ns"]
    ]
    parts = [pl.DataFrame(schema={"node": pl.UInt32, "op": pl.UInt32})]
    waiting = waiting.sort("start_ns")
    for (stream,), tails in launched.group_by("stream_no", maintain_order=True):
        anyone = pl.col("awaited_no").is_null() | (pl.col("awaited_no") == stream)
        asked = waiting.filter(anyone, pl.col("process_no") == tails["process_no"][0])
        tail = asked[["node", "start_ns"]].join_asof(
            tails.sort("launch_start_ns", "end_ns")[["launch_start_ns", "op"]],
            left_on="start_ns",
            right_on="launch_start_ns",
            allow_exact_matches=False,
            check_sortedness=False,
        )
        parts.append(tail[["node", "op"]].drop_nulls())
    return pl.concat(parts)


FULL: Final = 1000
"""With so many before it, a launch was held up: what it took says nothing of its own cost."""

CHECKED: Final = 16
"""The replay looks at the queue at every 16th launch: a run of launches may pass the limit by 15,
and has a sixteenth of the nodes."""

USUAL_COST_NS: Final = 5_000
"""What a launch costs where a report has none to measure."""


def with_queue(calls: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """`calls` (with `after`) plus the operation that a launch waits for because of the queue.

    A launch does not end before the one 1024 before it is done. One that found 1000 before it has
    the usual cost of its kind.
    """
    queued = _queued(ops, len(calls))
    if queued.is_empty():
        return calls
    waits = calls["after"].is_not_null()[queued["node"]]
    queued = queued.filter(~waits)
    launched = calls[["name", "end_ns", "cost_ns"]][queued["node"]]
    usual = median_ns(pl.col("cost_ns").filter(~pl.col("full"))).over("name")
    usual = usual.fill_null(USUAL_COST_NS)
    done_ns = ops["end_ns"][queued["ahead"]]
    since = (pl.col("end_ns") - pl.lit(done_ns)).alias("after_ns")
    limited = queued.hstack(launched).with_columns(
        pl.when("full").then(pl.min_horizontal("cost_ns", usual)).otherwise("cost_ns"),
        pl.when("full").then(since).otherwise(0).alias("after_ns"),
        (since >= 0).alias("possible"),
    )
    limited = limited.filter("possible", pl.col("full") | (pl.col("place") % CHECKED == 0))
    return calls.with_columns(
        calls[column].scatter(limited["node"], limited[value])
        for column, value in (("cost_ns", "cost_ns"), ("after", "ahead"), ("after_ns", "after_ns"))
    )


def _queued(ops: pl.DataFrame, calls: int) -> pl.DataFrame:
    """Per launch that has 1024 before it on its stream: `node`, its `place`, `ahead` (the last
    operation of the one 1024 before it) and whether it found the queue `full`."""
    launched = ops.filter(pl.col("node").is_not_null())
    last = scatter_table(calls, launched["node"], launched["op"])
    stream = ["process_no", "device_no", "stream"]
    launches = launched.filter("first")[["node", "launch_start_ns", *stream]]
    launches = launches.with_columns(last[launches["node"]].alias("op"))
    places = []
    for _, group in launches.group_by(stream, maintain_order=True):
        if len(group) > MOST_QUEUED:
            places.append(_places(group.sort("launch_start_ns"), ops["end_ns"]))
    return pl.concat(places) if places else pl.DataFrame()


def _places(launches: pl.DataFrame, ends: pl.Series) -> pl.DataFrame:
    """`_queued` of one stream, of launches in order."""
    done = ends[launches["op"]].sort().search_sorted(launches["launch_start_ns"], "right")
    place = pl.int_range(pl.len(), dtype=pl.Int64)
    return launches.select(
        "node",
        place.alias("place"),
        pl.col("op").shift(MOST_QUEUED).alias("ahead"),
        (place - pl.lit(done).cast(pl.Int64) >= FULL).alias("full"),
    ).drop_nulls("ahead")
