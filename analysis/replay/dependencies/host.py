"""Which call follows which, on a thread and from thread to thread (spec §14)."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import polars as pl

from nsysflow.analysis.frames.intervals import reached_before
from nsysflow.analysis.timeline.events import Events

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
            `cost_ns` (what the call itself takes).
        node_of_call: for each call of the events its node, that of the call around it, or null.
    """

    calls: pl.DataFrame
    node_of_call: pl.Series


def host_calls(events: Events) -> Host:
    """The outermost calls that launch, wait or allocate; other calls count as the host's work."""
    outer, holder = _outermost(events)
    launching = holder.gather(events.ops["call"].drop_nulls().unique())
    acts = (events.calls["class"].gather(outer) != "api").scatter(launching, values=True)
    kept = outer.filter(acts)
    node_of_outer = pl.select(
        pl.when(pl.lit(acts)).then(pl.lit(acts).cast(pl.UInt32).cum_sum() - 1)
    ).to_series()
    columns = ["call", "name", "class", "thread_no", "start_ns", "end_ns"]
    calls = events.calls.select(columns)[kept].with_columns(
        events.threads["process_no"].gather(events.calls["thread_no"].gather(kept)),
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("node"),
        (pl.col("end_ns") - pl.col("start_ns")).alias("cost_ns"),
    )
    return Host(
        calls=_with_predecessors(calls, events.threads),
        node_of_call=node_of_outer.gather(holder),
    )


def _outermost(events: Events) -> tuple[pl.Series, pl.Series]:
    """The rows of the calls that lie in no other of their thread; and which of them each call lies
    in, or is."""
    place = events.axis.at(pl.col("thread_no"), pl.col("start_ns"))
    end = place + pl.col("end_ns") - pl.col("start_ns")
    opens = events.calls.select(
        (place >= reached_before(end)).fill_null(value=True).alias("opens")
    ).to_series()
    return opens.arg_true(), opens.cast(pl.UInt32).cum_sum() - 1


def _with_predecessors(calls: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    """`calls` plus `team`, `pred` and `work_ns`."""
    same = pl.col("thread_no") == pl.col("thread_no").shift(1)
    before = pl.when(same).then(pl.col("node").shift(1))
    calls = calls.with_columns(before.alias("before"), before.alias("pred"))
    pairs = list(_handing_over(calls, threads))
    for one, other in pairs:
        for mine, theirs in ((one, other), (other, one)):
            calls = _after_the_later(calls, mine, theirs)
    end_ns = calls["end_ns"].gather(calls["pred"])
    span_ns = pl.col("start_ns") - pl.lit(end_ns).fill_null(0)
    return calls.with_columns(
        span_ns.alias("span_ns"),
        span_ns.alias("work_ns"),
        _teams(pairs, len(threads)).gather(calls["thread_no"]).alias("team"),
    )


def _handing_over(calls: pl.DataFrame, threads: pl.DataFrame) -> Iterator[tuple[int, int]]:
    """Pairs of threads of a process of which one goes on where the other stopped."""
    counts = dict(calls.group_by("thread_no").len().rows())
    about = threads.filter(pl.col("thread_no").is_in([*counts])).sort("thread_no")
    kind = pl.when("autograd").then(1).when("main").then(2).otherwise(0).alias("kind")
    for _, group in about.group_by("process_no", maintain_order=True):
        kinds = dict(group.select("thread_no", kind).rows())
        for one, other in combinations(kinds, 2):
            backward = {kinds[one], kinds[other]} == {1, 2}
            fewer = min(counts[one], counts[other])
            if backward or _turns(calls, one, other) <= MOST_TURNS * fewer:
                yield one, other


def _turns(calls: pl.DataFrame, one: int, other: int) -> int:
    """How often the calls of two threads, by start, change from one to the other."""
    both = calls.filter(pl.col("thread_no").is_in([one, other])).sort("start_ns", "node")
    return int((both["thread_no"] != both["thread_no"].shift(1)).sum())


def _after_the_later(calls: pl.DataFrame, mine: int, theirs: int) -> pl.DataFrame:
    """`calls` with `pred` of thread `mine` on thread `theirs` where that call ended later."""
    ended = calls.filter(pl.col("thread_no") == theirs).select("end_ns", other="node")
    asked = calls.filter(pl.col("thread_no") == mine).select("node", "pred", time_ns="start_ns")
    found = asked.join_asof(
        ended, left_on="time_ns", right_on="end_ns", check_sortedness=False
    ).with_columns(
        calls["end_ns"].gather(asked["pred"]).alias("mine_ns"),
    )
    ended_ns = calls["end_ns"].gather(found["other"])
    later = (ended_ns > found["mine_ns"]).fill_null(value=False) | found["pred"].is_null()
    pred = found.select(pl.when(later).then("other").otherwise("pred")).to_series()
    return calls.with_columns(calls["pred"].scatter(found["node"], pred))


def _teams(pairs: list[tuple[int, int]], threads: int) -> pl.Series:
    """Per thread the smallest of those that it hands over to, directly or not."""
    team = list(range(threads))
    for one, other in pairs:
        joined, gone = sorted((team[one], team[other]))
        team = [joined if mine == gone else mine for mine in team]
    return pl.Series("team", team, dtype=pl.UInt32)
