"""The ranges of work that a CUDA graph replays: those of its capture (spec §7.13 to §7.17)."""

from dataclasses import dataclass, replace
from typing import Final, Self

import polars as pl

from nsysflow.analysis.events.events import Events, in_order
from nsysflow.analysis.events.graphs import NodeOrigins
from nsysflow.analysis.frames.columns import repeated
from nsysflow.analysis.options import Options
from nsysflow.analysis.phases.stacks import (
    NODES,
    PHASE_RANGES,
    Nodes,
    OpenRanges,
    PhaseRanges,
    place_stacks,
    with_inherited,
)
from nsysflow.analysis.trace import Trace

_STACKS: Final = pl.Schema({"process": pl.Int64(), "graph_node": pl.Int64(), "stack": pl.UInt32()})
_INSIDE: Final = pl.Schema({"stack": pl.UInt32(), "range": pl.UInt32(), "depth": pl.Int64()})


@dataclass(frozen=True, kw_only=True)
class CaptureRanges:
    """The ranges that were open around each node of a graph while it was captured.

    Attributes:
        stacks: `process`, `graph_node`, `stack`: the stack around each node; many have the same.
        inside: `stack`, `range`, `depth`: the ranges of each stack that opened during the capture;
            the outermost has the smallest depth.
        ranges: these ranges, by `range`.
    """

    stacks: pl.DataFrame
    inside: pl.DataFrame
    ranges: PhaseRanges

    @classmethod
    def at(cls, captured: pl.DataFrame, nodes: Nodes, ranges: PhaseRanges) -> Self:
        """The ranges inside the captures.

        Args:
            captured: `NODE_ORIGINS`, and the `node` of the stack that was open then.
            nodes: the stacks.
            ranges: those of the nodes.
        """
        captured = captured.drop_nulls("node")
        distinct = captured[["node", "began_ns"]].unique().sort("node", "began_ns")
        distinct = distinct.with_row_index("stack")
        here, inside = distinct, [_INSIDE.to_frame()]
        while not here.is_empty():
            at = nodes[["parent", "range"]][here["node"]]
            at = at.with_columns(ranges["start_ns"][at["range"]])
            depth = pl.lit(-len(inside), pl.Int64).alias("depth")
            rows = here.select("stack", "began_ns", depth).hstack(at)
            during = rows.filter(pl.col("start_ns") >= pl.col("began_ns"))
            inside.append(during.select(_INSIDE.names()))
            here = rows.select("stack", "began_ns", node="parent").drop_nulls("node")
        stacks = captured.join(distinct, on=["node", "began_ns"]).select(_STACKS.names())
        return cls(stacks=stacks, inside=pl.concat(inside), ranges=ranges)

    def and_those(self, others: "CaptureRanges") -> "CaptureRanges":
        """These and others, of other nodes."""
        if others.stacks.is_empty():
            return self
        stack = pl.col("stack") + len(self.stacks)
        moved = pl.col("range") + len(self.ranges)
        return CaptureRanges(
            stacks=pl.concat([self.stacks, others.stacks.with_columns(stack)]),
            inside=pl.concat([self.inside, others.inside.with_columns(stack, moved)]),
            ranges=pl.concat([self.ranges, others.ranges.with_columns(moved)]),
        )


def listed_captures(trace: Trace, origins: NodeOrigins, options: Options) -> CaptureRanges:
    """The ranges of captures from before the recording, which the window's marks list.

    Args:
        trace: the report.
        origins: of the nodes that were captured while nothing recorded.
        options: of the analysis.
    """
    ranges = trace.graph_ranges
    if ranges.is_empty() or origins.is_empty():
        return CaptureRanges(
            stacks=_STACKS.to_frame(), inside=_INSIDE.to_frame(), ranges=PHASE_RANGES.to_frame()
        )
    before = replace(trace.without_rows(), ranges=ranges, overhead=trace.overhead.clear())
    events = in_order(before, options)
    open_ranges = OpenRanges.of(events, options)
    began_ns, last_ns = events.ranges["start_ns"].min(), events.last_ns
    asked = origins.join(events.threads[["thread", "thread_no"]], on="thread")
    asked = asked.filter(pl.col("time_ns").is_between(began_ns, last_ns))
    stacks = open_ranges.stacks_at(asked)
    nodes, composed = with_inherited(open_ranges.nodes, [stacks])
    node, began = (
        place_stacks(stacks, composed)["node"],
        pl.lit(began_ns, pl.Int64).alias("began_ns"),
    )
    return CaptureRanges.at(asked.with_columns(node, began), nodes, open_ranges.ranges)


@dataclass(frozen=True, kw_only=True)
class GraphReplays:
    """The nodes that replays add.

    Attributes:
        nodes: numbered after those that there were.
        ranges: the ranges of these nodes, one for each replay, numbered likewise. A captured range
            counts as open during the call that launches its graph; `captured_ns` is when it really
            opened.
        node_of_op: per operation its node; null where its launch has nothing to add.
    """

    nodes: Nodes
    ranges: PhaseRanges
    node_of_op: pl.Series

    @classmethod
    def of(
        cls,
        open_ranges: OpenRanges,
        names: pl.Series,
        launches: pl.Series,
        captures: CaptureRanges,
        *,
        first_node: int,
    ) -> Self:
        """What the replays of a trace add.

        Args:
            open_ranges: of the trace.
            names: per node so far, the list of names of its path.
            launches: per operation, the node of its launch.
            captures: the ranges in which work was captured.
            first_node: the number of the first node to add.
        """
        events = open_ranges.events
        ops = events.ops[["op", "process", "graph_node", "call"]]
        ops = ops.with_columns(launches.alias("launch_node")).drop_nulls(["graph_node", "call"])
        ops = ops.join(captures.stacks, on=["process", "graph_node"])
        pairs = ops[["launch_node", "stack"]].unique()
        tree, tops = _tree(_not_open(pairs, captures, names))
        ops = ops.join(tops, on=["launch_node", "stack"], nulls_equal=True)
        replayed = _with_outer(ops[["call", "launch_node", "leaf"]].unique(), tree)
        opened = _opened(replayed, captures, events, first_range=len(open_ranges.ranges))
        replayed = replayed.join(opened[["call", "inner", "range"]], on=["call", "inner"])
        replayed = replayed.sort("call", "leaf").with_row_index("node", offset=first_node)
        placed = ops.join(replayed[["call", "leaf", "node"]], on=["call", "leaf"])
        none = repeated(None, len(events.ops), pl.UInt32)
        return cls(
            nodes=_nodes(replayed),
            ranges=opened.drop("call", "inner"),
            node_of_op=none.scatter(placed["op"], placed["node"]),
        )


def _not_open(pairs: pl.DataFrame, captures: CaptureRanges, names: pl.Series) -> pl.DataFrame:
    """`launch_node`, `stack`, `range`, `level`: the ranges of each stack, outermost first, without
    those of which the name is open at the launch."""
    wanted = pairs.join(captures.inside, on="stack")
    wanted = wanted.with_columns(
        captures.ranges["name"][wanted["range"]],
        names[wanted["launch_node"]].fill_null([]).alias("path"),
    )
    kept = wanted.filter(~pl.col("name").is_in("path"))
    level = pl.col("depth").rank("ordinal").over("launch_node", "stack").alias("level")
    return kept.select("launch_node", "stack", "range", level)


def _tree(kept: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What the lists of `_not_open` have in common: `leaf`, `outer` (a leaf, null at the root),
    `inner` (a range); and the last leaf of each list: `launch_node`, `stack`, `leaf`."""
    key = ["launch_node", "stack"]
    tree = pl.DataFrame(schema={"leaf": pl.UInt32, "outer": pl.UInt32, "inner": pl.UInt32})
    reached = kept.select(key).unique().with_columns(pl.lit(None, pl.UInt32).alias("leaf"))
    tops = []
    level = 1
    while not reached.is_empty():
        here = kept.filter(pl.col("level") == level).rename({"range": "inner"})
        deeper = here.join(reached.rename({"leaf": "outer"}), on=key, nulls_equal=True)
        leaves = deeper[["outer", "inner"]].unique().sort("outer", "inner")
        leaves = leaves.with_row_index("leaf", offset=len(tree)).select(tree.columns)
        tops.append(reached.join(deeper, on=key, how="anti", nulls_equal=True))
        tree = pl.concat([tree, leaves])
        deeper = deeper.join(leaves, on=["outer", "inner"], nulls_equal=True)
        reached = deeper[[*key, "leaf"]]
        level += 1
    return tree, pl.concat(tops) if tops else reached


def _with_outer(replayed: pl.DataFrame, tree: pl.DataFrame) -> pl.DataFrame:
    """`call`, `launch_node`, `leaf`, `outer`, `inner`: the leaves of each call, and all that are
    around them."""
    leaves = [replayed.clear()]
    here = replayed
    while not here.is_empty():
        leaves.append(here)
        outer = tree["outer"][here["leaf"]].alias("leaf")
        here = here.with_columns(outer).drop_nulls("leaf").unique()
    return pl.concat(leaves).unique().join(tree, on="leaf")


def _opened(
    replayed: pl.DataFrame, captures: CaptureRanges, events: Events, *, first_range: int
) -> pl.DataFrame:
    """The ranges of the calls, as `Replays.ranges`, with `call` and `inner`, the range of the
    capture."""
    opened = replayed[["call", "inner"]].unique().sort("call", "inner")
    captured = captures.ranges[opened["inner"]]
    calls = events.calls[["start_ns", "end_ns", "thread_no"]][opened["call"]]
    at = [
        events.axis.at(pl.col("thread_no"), pl.col(f"{side}_ns")).alias(side)
        for side in ("start", "end")
    ]
    return (
        captured.with_columns(
            *calls,
            events.threads["thread"][calls["thread_no"]],
            captured["start_ns"].alias("captured_ns"),
            pl.lit("push_pop", captured.schema["kind"]).alias("kind"),
            pl.lit(value=True).alias("ended"),
            pl.int_range(pl.len(), dtype=pl.UInt32).alias("range") + first_range,
        )
        .with_columns(at)
        .hstack(opened)
    )


def _nodes(replayed: pl.DataFrame) -> Nodes:
    """`Replays.nodes`: each on top of the one around it, the outermost on its launch's."""
    around = replayed.select("call", pl.col("leaf").alias("outer"), pl.col("node").alias("parent"))
    on_top = replayed.join(around, on=["call", "outer"], how="left", maintain_order="left")
    parent = pl.coalesce("parent", "launch_node").alias("parent")
    return on_top.select("node", parent, "range").match_to_schema(NODES)
