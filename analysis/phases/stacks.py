"""Which NVTX ranges were open on a thread, at any instant (spec §7)."""

from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.events.events import NUMBERED_RANGES, Events
from nsysflow.analysis.frames.intervals import last_at_or_before, sort_with_ties
from nsysflow.analysis.frames.lookup import enum_from_index, greatest
from nsysflow.analysis.options import Options
from nsysflow.analysis.phases.automatic import (
    automatic_steps,
    is_border,
    with_losses,
    without_doubles,
)
from nsysflow.analysis.phases.names import group_names, is_compiling, is_operator, outside_compiling
from nsysflow.analysis.schema import ATTRIBUTION
from nsysflow.runtime.protocol import DOMAIN

LIBRARY_DOMAINS: Final = ("nccl", "cccl", "cublas", "cudnn", "cusparse", "cufft")
"""Domains of libraries, in lower case: their ranges are not phases (spec §7)."""

PROFILER_DOMAINS: Final = (
    "GIL Trace",
    "Python Periodic Sampling",
    "Python Backtrace on CUDA",
    DOMAIN,
)
"""Domains of the profiler, and ours, whose range opens the capture window: not phases either."""

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
    steps = automatic_steps(ranges.filter(is_border()), axis)
    ranges = ranges.filter(~is_border())
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
    nodes = nested.select("node", "parent", "range").match_to_schema(NODES)
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
    return events.filter(last).select("place", "node").match_to_schema(HISTORY)


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
    return history["node"].gather(last_at_or_before(history["place"], places))


def with_inherited(nodes: Nodes, stacks: list[StacksFound]) -> tuple[Nodes, pl.DataFrame]:
    """`nodes`, plus one for each own stack on top of an inherited one.

    The second frame, `inherited`, `own`, `node`, says which node was added for which pair.
    """
    both = [
        f.filter(pl.col("own").is_not_null() & pl.col("inherited").is_not_null()) for f in stacks
    ]
    pairs = pl.concat([f.select("inherited", "own") for f in both]).unique()
    known = [pairs]
    while not pairs.is_empty():
        pairs = pairs.select("inherited", nodes["parent"].gather(pairs["own"]).alias("own"))
        pairs = pairs.drop_nulls().unique()
        known.append(pairs)
    composed = (
        pl.concat(known).unique().sort("inherited", "own").with_row_index("node", offset=len(nodes))
    )
    outer = composed.select(
        "node",
        "inherited",
        nodes["parent"].gather(composed["own"]).alias("own"),
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
        nodes["range"].gather(outer["top"]).alias("range"),
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
