"""The ranges that a call belongs to: its thread's own, or inherited ones (spec §7.3, §7.4).

Autograd launches backward's kernels on its own threads, where no range is open. A thread without
ranges inherits those of the main thread, or of the only other thread that has any. If there is
none, the latest start/end range of the process counts.
"""

from dataclasses import dataclass
from typing import Annotated, Final, Self

import polars as pl

from nsysflow.analysis.events.events import Events
from nsysflow.analysis.frames.intervals import Axis, flatten, last_at_or_before
from nsysflow.analysis.options import Options
from nsysflow.analysis.phases.stacks import (
    NODES,
    History,
    Nodes,
    PhaseRanges,
    StacksFound,
    node_at,
    phase_ranges,
    thread_stacks,
)

SLOTS: Final = pl.Schema(
    {
        "thread_no": pl.UInt32(),
        "time_ns": pl.Int64(),
        "host_wall_ns": pl.Int64(),
        "place": pl.Int64(),
    }
)
"""When a thread had open ranges, and how long the same ones; `place` is on the thread axis."""

SPANS: Final = pl.Schema({"start": pl.Int64(), "end": pl.Int64(), "node": pl.UInt32()})
"""Which start/end range covers each instant, on the process axis."""


@dataclass(frozen=True, kw_only=True)
class OpenRanges:
    """Which ranges were open when, by thread and by process.

    Attributes:
        events: the trace.
        ranges: those that can be phases, numbered `range`.
        nodes: the threads' own stacks, and one for each start/end range.
        history: when each was open.
        slots: when a thread had open ranges.
        spans: when start/end ranges of a process were open.
    """

    events: Events
    ranges: PhaseRanges
    nodes: Nodes
    history: History
    slots: Annotated[pl.DataFrame, SLOTS]
    spans: Annotated[pl.DataFrame, SPANS]

    @classmethod
    def of(cls, events: Events, options: Options) -> Self:
        """The open ranges of a trace."""
        ranges = phase_ranges(events, options)
        nodes, history = thread_stacks(ranges.filter(pl.col("kind") == "push_pop"))
        spans, span_nodes = _process_spans(events, ranges, first_node=len(nodes))
        return cls(
            events=events,
            ranges=ranges,
            nodes=pl.concat([nodes, span_nodes]),
            history=history,
            slots=_slots(events, history),
            spans=spans,
        )

    def stacks_at(self, asked: pl.DataFrame) -> StacksFound:
        """The nodes that decide the phase at each (`thread_no`, `time_ns`)."""
        threads, axis = self.events.threads, self.events.axis
        no = asked["thread_no"]
        time_ns = asked["time_ns"]
        own = node_at(self.history, _places(axis, no, time_ns))
        autograd = threads["autograd"].gather(no)
        inherits = (autograd | own.is_null()) & ~threads["main"].gather(no)
        asking = inherits.fill_null(value=False).arg_true()
        inherited = pl.repeat(None, len(asked), dtype=pl.UInt32, eager=True)
        if not asking.is_empty():
            others = self._inherited_at(no.gather(asking), time_ns.gather(asking))
            inherited = inherited.scatter(asking, others)
        lost = (own.is_null() & inherited.is_null() & no.is_not_null()).arg_true()
        span = pl.repeat(None, len(asked), dtype=pl.UInt32, eager=True)
        if not lost.is_empty():
            process = threads["process_no"].gather(no.gather(lost))
            covering = _covering(self.spans, _places(axis, process, time_ns.gather(lost)))
            span = span.scatter(lost, covering)
        return pl.DataFrame({"own": own, "inherited": inherited, "span": span})

    def _inherited_at(self, no: pl.Series, time_ns: pl.Series) -> pl.Series:
        """The main thread's node, else that of the only other thread that has one."""
        threads, axis = self.events.threads, self.events.axis
        process = threads["process_no"].gather(no)
        main = threads.filter("main").select("process_no", pl.col("thread_no").alias("main_no"))
        main_no = process.to_frame().join(main, on="process_no", how="left", maintain_order="left")[
            "main_no"
        ]
        of_main = node_at(self.history, _places(axis, main_no, time_ns))
        only_no = self._only_thread_at(_places(axis, process, time_ns))
        of_only = node_at(self.history, _places(axis, only_no, time_ns))
        return pl.select(pl.coalesce(of_main, of_only)).to_series()

    def _only_thread_at(self, places: pl.Series) -> pl.Series:
        """The only thread with an open range, apart from main and autograd threads.

        Null if there are several or none.
        """
        threads, axis = self.events.threads, self.events.axis
        others = threads.filter(~pl.col("main") & ~pl.col("autograd"))
        slots = self.slots.join(others.select("thread_no", "process_no"), on="thread_no")
        place = axis.at(pl.col("process_no"), pl.col("time_ns"))
        count, who = pl.lit(1, pl.Int64), pl.col("thread_no").cast(pl.Int64)
        edges = pl.concat(
            [
                slots.select(place.alias("place"), count.alias("count"), who.alias("who")),
                slots.select(
                    (place + pl.col("host_wall_ns")).alias("place"),
                    -count.alias("count"),
                    -who.alias("who"),
                ),
            ]
        )
        steps = edges.group_by("place").agg(pl.col("count", "who").sum()).sort("place")
        steps = steps.with_columns(pl.col("count", "who").cum_sum())
        only = steps.select(pl.when(pl.col("count") == 1).then(pl.col("who").cast(pl.UInt32)))
        return only.to_series().gather(last_at_or_before(steps["place"], places))


def _slots(events: Events, history: History) -> pl.DataFrame:
    """`OpenRanges.slots`: the parts of each thread's history in which a range was open."""
    axis = events.axis
    length = pl.col("place").shift(-1) - pl.col("place")
    return (
        history.with_columns(length.alias("host_wall_ns"))
        .filter(pl.col("node").is_not_null())
        .select(
            axis.track(pl.col("place")).cast(pl.UInt32).alias("thread_no"),
            axis.time_ns(pl.col("place")).alias("time_ns"),
            "host_wall_ns",
            "place",
        )
    )


def _process_spans(
    events: Events, ranges: PhaseRanges, *, first_node: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Which start/end range covers each instant of a process, on the process axis; and their nodes.

    If several do, the last in stack order counts.
    """
    axis = events.axis
    spans = ranges.filter(pl.col("kind") == "start_end").with_row_index("node", offset=first_node)
    process = events.threads["process_no"].gather(spans["thread_no"])
    claims = spans.select(
        axis.at(pl.lit(process), pl.col("start_ns")).alias("start"),
        axis.at(pl.lit(process), pl.col("end_ns")).alias("end"),
        "node",
        "row",
    )
    nodes = spans.select("node", pl.lit(None, pl.UInt32).alias("parent"), "range")
    return flatten(claims.sort("start"), rank=_latest_first, keep=["node"]), nodes.match_to_schema(
        NODES
    )


def _latest_first(claims: pl.DataFrame) -> pl.DataFrame:
    return claims.select(-pl.col("start"), "end", -pl.col("row").cast(pl.Int64))


def _places(axis: Axis, track: pl.Series, time_ns: pl.Series) -> pl.Series:
    return pl.select(axis.at(pl.lit(track), pl.lit(time_ns))).to_series()


def _covering(spans: pl.DataFrame, places: pl.Series) -> pl.Series:
    at = last_at_or_before(spans["start"], places)
    inside = places < spans["end"].gather(at)
    node = spans["node"].gather(at)
    return pl.select(pl.when(inside).then(node)).to_series()
