"""Which NVTX ranges were open on a thread, at any instant: its own, or inherited ones (spec §7).

Autograd launches kernels of backward on its own threads, where no range is open. A thread without
ranges inherits those of the main thread, or of the only other thread that has any. If there is
none, the latest start/end range of the process counts (spec §7.3, §7.4).
"""

from dataclasses import dataclass
from typing import Annotated, Final, Self

import polars as pl

from nsysflow.analysis.events.events import NUMBERED_RANGES, Events
from nsysflow.analysis.frames.columns import enum_from_index, greatest, repeated
from nsysflow.analysis.frames.intervals import flatten, last_at_or_before, sort_with_ties
from nsysflow.analysis.frames.parallel import computed_once
from nsysflow.analysis.options import Options
from nsysflow.analysis.phases.automatic import (
    automatic_steps,
    is_border,
    is_look,
    with_losses,
    without_captured_loops,
    without_doubles,
)
from nsysflow.analysis.phases.names import group_names, is_compiling, is_operator, outside_compiling
from nsysflow.analysis.schema import ATTRIBUTION
from nsysflow.runtime.protocol import DOMAIN

LIBRARY_DOMAINS: Final = ("nccl", "cccl", "cublas", "cudnn", "cusparse", "cufft")
"""Domains of libraries, in lower case: their ranges are not phases (spec §7)."""

PROFILER_DOMAINS: Final = (
    "Python Periodic Sampling",
    "Python Backtrace on CUDA",
    DOMAIN,
)
"""Domains of the profiler, and ours, whose range opens the capture window: not phases either."""

MOST_DEEP: Final = 100
"""So many ranges of a thread count at an instant, the outermost. No program nests as many; a
damaged report has thousands that never end, and each path would name them all."""

NODES: Final = pl.Schema({"node": pl.UInt32(), "parent": pl.UInt32(), "range": pl.UInt32()})
"""Stacks of ranges; `parent` is null for a stack of one."""
Nodes = Annotated[pl.DataFrame, NODES]

HISTORY: Final = pl.Schema({"place": pl.Int64(), "node": pl.UInt32()})
"""From `place` on, `node` is open (null: none) until the next row's place; sorted."""
History = Annotated[pl.DataFrame, HISTORY]

PHASE_RANGES: Final = pl.Schema(
    {
        "range": pl.UInt32(),
        **NUMBERED_RANGES,
        "operator": pl.Boolean(),
        "compiling": pl.Boolean(),
        "start": pl.Int64(),
        "end": pl.Int64(),
        "captured_ns": pl.Int64(),
    }
)
"""A row per range that can be a phase, and per automatic step, which has no kind. `start` and `end`
are on the thread axis. `captured_ns` is when a range of a replayed graph opened, else 0."""
PhaseRanges = Annotated[pl.DataFrame, PHASE_RANGES]

STACKS_FOUND: Final = pl.Schema({"own": pl.UInt32(), "inherited": pl.UInt32(), "span": pl.UInt32()})
"""What was open at an instant of a thread: its own node, that of the thread it inherits from, and
the start/end range of its process; null where there is none."""
StacksFound = Annotated[pl.DataFrame, STACKS_FOUND]


def phase_ranges(events: Events, options: Options) -> PhaseRanges:
    """The ranges that can be phases, in stack order (start, longest first, row), numbered `range`;
    behind them the automatic steps, which have no kind.

    `name` is normalised (step numbers removed). `operator` marks ranges around one operator,
    `compiling` those around compiling; its parts are left out. `captured_ns` is 0; `captured` adds
    ranges with another.
    """
    domain = pl.col("domain").fill_null("")
    owned = domain.str.to_lowercase().is_in(LIBRARY_DOMAINS) | domain.is_in(PROFILER_DOMAINS)
    added, removed = options.domains_added, options.domains_removed
    is_phase = (~owned | domain.is_in(added)) & ~domain.is_in(removed)
    axis = events.axis
    start = axis.at(pl.col("thread_no"), pl.col("start_ns")).alias("start")
    end = axis.at(pl.col("thread_no"), pl.col("end_ns")).alias("end")
    ranges = events.ranges.filter(is_phase, pl.col("end_ns") > pl.col("start_ns")).with_columns(
        is_operator(pl.col("name")).alias("operator"),
        is_compiling(pl.col("name")).alias("compiling"),
        start,
        end,
        pl.lit(0, pl.Int64).alias("captured_ns"),
    )
    steps = without_captured_loops(automatic_steps(ranges.filter(is_border()), axis), events.ops)
    ranges = ranges.filter(~is_border(), ~is_look())
    ranges = sort_with_ties(ranges, "start", [-pl.col("end"), pl.col("row")])
    ranges = outside_compiling(ranges)
    ranges = without_doubles(ranges.with_columns(group_names(ranges["name"])))
    return pl.concat([with_losses(ranges), steps]).with_row_index("range")


def thread_stacks(ranges: PhaseRanges) -> tuple[Nodes, History]:
    """The stacks of the push/pop ranges, and the history of every thread.

    Args:
        ranges: push/pop only.
    """
    nested = _with_parents(ranges)
    outgrown = nested.filter(pl.col("end") > pl.col("parent_end"))["thread_no"].unique()
    mixed = ranges.filter(pl.col("thread_no").is_in(outgrown.implode()))
    if not mixed.is_empty():
        nested = _with_parents(ranges.filter(~pl.col("thread_no").is_in(outgrown.implode())))
    if greatest(nested["depth"]) >= MOST_DEEP:
        nested = _with_parents(nested.filter(pl.col("depth") < MOST_DEEP)[ranges.columns])
    nodes = nested[["node", "parent", "range"]].match_to_schema(NODES)
    mixed_nodes, mixed_history = _mixed_stacks(mixed, first_node=len(nodes))
    history = pl.concat([_nested_history(nested), mixed_history]).sort("place")
    return pl.concat([nodes, mixed_nodes]), history


def _with_parents(ranges: PhaseRanges) -> pl.DataFrame:
    """`ranges` plus `node`, `depth`, `parent` and `parent_end`, on the assumption that they nest.

    A range's depth is the number of ranges that began before it and had not ended; its parent is
    the last before it that is one less deep.
    """
    order = pl.int_range(pl.len(), dtype=pl.UInt32)
    ended = ranges["end"].sort().search_sorted(ranges["start"], side="right")
    deep = ranges.with_columns(order.alias("node"), order.cast(pl.Int64).alias("depth") - ended)
    outer = deep.select(
        "node",
        pl.col("depth") + 1,
        pl.col("node").alias("parent"),
        pl.col("end").alias("parent_end"),
    )
    return deep.join_asof(outer, on="node", by="depth", check_sortedness=False)


def _nested_history(ranges: pl.DataFrame) -> History:
    """History of ranges that nest: a start opens the range's node, an end returns to its parent.

    At one instant the last start wins; where only ends meet, the outermost.
    """
    rank = pl.col("node").cast(pl.Int64)
    opened = ranges.select(pl.col("start").alias("place"), "node", rank.alias("rank"))
    closed = ranges.select(
        pl.col("end").alias("place"),
        pl.col("parent").alias("node"),
        (-pl.col("depth") - 1).alias("rank"),
    )
    events = sort_with_ties(pl.concat([opened, closed]), "place", [pl.col("rank")])
    last = pl.col("place") != pl.col("place").shift(-1, fill_value=-1)
    return events.filter(last)[["place", "node"]].match_to_schema(HISTORY)


def _mixed_stacks(ranges: PhaseRanges, *, first_node: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Stacks and history of ranges that overlap without nesting.

    Between any two borders the open ranges are stacked level by level, from the outermost.
    """
    borders = pl.concat([ranges["start"], ranges["end"]]).unique().sort()
    first, past = (borders.search_sorted(ranges[side]) for side in ("start", "end"))
    order = pl.col("range").rank("ordinal").over("slot").alias("level")
    open_ranges = (
        ranges.select("range", pl.int_ranges(first, past, dtype=pl.UInt32).alias("slot"))
        .explode("slot")
        .with_columns(order)
        .filter(pl.col("level") <= MOST_DEEP)
    )
    top = pl.DataFrame(
        {"slot": pl.int_range(len(borders), dtype=pl.UInt32, eager=True)}
    ).with_columns(pl.lit(None, pl.UInt32).alias("node"))
    nodes = [NODES.to_frame()]
    for level in range(1, greatest(open_ranges["level"]) + 1):
        here = open_ranges.filter(pl.col("level") == level).join(top, on="slot")
        added = (
            here.select(pl.col("node").alias("parent"), "range").unique().sort("range", "parent")
        )
        added = added.with_row_index("node", offset=first_node).select(NODES.names())
        nodes.append(added)
        first_node += len(added)
        deeper = here.rename({"node": "parent"}).join(
            added, on=["parent", "range"], nulls_equal=True
        )
        top = top.join(deeper.select("slot", pl.col("node").alias("deeper")), on="slot", how="left")
        top = top.select("slot", pl.coalesce("deeper", "node").alias("node"))
    history = top.sort("slot").select(borders.alias("place"), "node")
    return pl.concat(nodes), history.match_to_schema(HISTORY)


def node_at(history: History, places: pl.Series) -> pl.Series:
    """The node open at each place."""
    return history["node"][last_at_or_before(history["place"], places)]


def with_inherited(nodes: Nodes, stacks: list[StacksFound]) -> tuple[Nodes, pl.DataFrame]:
    """`nodes`, plus one for each own stack on top of an inherited one.

    The second frame, `inherited`, `own`, `node`, says which node was added for which pair.
    """
    both = [
        f.filter(pl.col("own").is_not_null() & pl.col("inherited").is_not_null()) for f in stacks
    ]
    pairs = pl.concat([f[["inherited", "own"]] for f in both]).unique()
    known = [pairs]
    while not pairs.is_empty():
        pairs = pairs.select("inherited", nodes["parent"][pairs["own"]].alias("own"))
        pairs = pairs.drop_nulls().unique()
        known.append(pairs)
    composed = (
        pl.concat(known).unique().sort("inherited", "own").with_row_index("node", offset=len(nodes))
    )
    outer = composed.select(
        "node",
        "inherited",
        nodes["parent"][composed["own"]].alias("own"),
        pl.col("own").alias("top"),
    ).join(
        composed.rename({"node": "outer"}),
        on=["inherited", "own"],
        how="left",
        maintain_order="left",
    )
    added = outer.select(
        "node",
        pl.coalesce("outer", "inherited").alias("parent"),
        nodes["range"][outer["top"]].alias("range"),
    )
    return pl.concat([nodes, added.match_to_schema(NODES)]), composed


def place_stacks(stacks: StacksFound, composed: pl.DataFrame) -> pl.DataFrame:
    """`node` and `how` of what the stacks were found for, with the pairs of `with_inherited`."""
    own, inherited, span = pl.col("own"), pl.col("inherited"), pl.col("span")
    if not composed.is_empty():
        stacks = stacks.join(composed, on=["inherited", "own"], how="left", maintain_order="left")
    else:
        stacks = stacks.with_columns(pl.lit(None, pl.UInt32).alias("node"))
    rank = {name: pl.lit(i, pl.UInt8) for i, name in enumerate(ATTRIBUTION.categories)}
    how = (
        pl.when(inherited.is_not_null())
        .then(rank["borrowed"])
        .when(own.is_not_null())
        .then(rank["own"])
        .when(span.is_not_null())
        .then(rank["process_range"])
    )
    placed = stacks.select(
        pl.coalesce("node", inherited, own, span).alias("node"), how.alias("how")
    )
    return placed.with_columns(enum_from_index(placed["how"], ATTRIBUTION))


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
        if asked.is_empty():
            return STACKS_FOUND.to_frame()
        threads, axis = self.events.threads, self.events.axis
        no = asked["thread_no"]
        time_ns = asked["time_ns"]
        own = node_at(self.history, axis.at(no, time_ns))
        at = pl.DataFrame(
            {"no": no, "own": own, "autograd": threads["autograd"][no], "main": threads["main"][no]}
        )
        inherits = (pl.col("autograd") | pl.col("own").is_null()) & ~pl.col("main")
        asking = at.select(pl.arg_where(inherits)).to_series()
        inherited = repeated(None, len(asked), pl.UInt32)
        if not asking.is_empty():
            others = self._inherited_at(no[asking], time_ns[asking])
            inherited = inherited.scatter(asking, others)
        nothing = pl.col("own").is_null() & pl.lit(inherited).is_null()
        lost = at.select(pl.arg_where(nothing & pl.col("no").is_not_null())).to_series()
        span = repeated(None, len(asked), pl.UInt32)
        if not lost.is_empty():
            process = threads["process_no"][no[lost]]
            covering = _covering(self.spans, axis.at(process, time_ns[lost]))
            span = span.scatter(lost, covering)
        return pl.DataFrame({"own": own, "inherited": inherited, "span": span})

    def _inherited_at(self, no: pl.Series, time_ns: pl.Series) -> pl.Series:
        """The main thread's node, else that of the only other thread that has one."""
        threads, axis = self.events.threads, self.events.axis
        process = threads["process_no"][no]
        main = threads.filter("main").select("process_no", pl.col("thread_no").alias("main_no"))
        main_no = process.to_frame().join(main, on="process_no", how="left", maintain_order="left")[
            "main_no"
        ]
        of_main = node_at(self.history, axis.at(main_no, time_ns))
        only_no = self._only_thread_at(axis.at(process, time_ns))
        of_only = node_at(self.history, axis.at(only_no, time_ns))
        return pl.select(pl.coalesce(of_main, of_only)).to_series()

    def _only_thread_at(self, places: pl.Series) -> pl.Series:
        """The only thread with an open range, apart from main and autograd threads.

        Null if there are several or none.
        """
        only = self._only_threads
        return only["thread_no"][last_at_or_before(only["place"], places)]

    @computed_once
    def _only_threads(self) -> pl.DataFrame:
        """From which `place` on which `thread_no` is the only one with an open range."""
        threads, axis = self.events.threads, self.events.axis
        others = threads.filter(~pl.col("main") & ~pl.col("autograd"))
        slots = self.slots.join(others[["thread_no", "process_no"]], on="thread_no")
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
        only = pl.when(pl.col("count") == 1).then(pl.col("who").cast(pl.UInt32))
        return steps.select("place", only.alias("thread_no"))


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
    process = events.threads["process_no"][spans["thread_no"]]
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


def _covering(spans: pl.DataFrame, places: pl.Series) -> pl.Series:
    at = last_at_or_before(spans["start"], places)
    inside = places < spans["end"][at]
    node = spans["node"][at]
    return pl.select(pl.when(inside).then(node)).to_series()
