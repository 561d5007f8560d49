"""In which ranges the work of CUDA graphs was captured (spec §7.13, §7.14, §7.16)."""

from dataclasses import dataclass, replace
from typing import Final, Self

import polars as pl

from nsysflow.analysis.options import Options
from nsysflow.analysis.phases.composed import placed_in, with_inherited
from nsysflow.analysis.phases.inherit import OpenRanges
from nsysflow.analysis.timeline.events import in_order
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
        ranges: as of `stacks.phase_ranges`, by `range`.
    """

    stacks: pl.DataFrame
    inside: pl.DataFrame
    ranges: pl.DataFrame

    @classmethod
    def at(cls, captured: pl.DataFrame, nodes: pl.DataFrame, ranges: pl.DataFrame) -> Self:
        """The ranges inside the captures.

        Args:
            captured: `graph_nodes.NODE_ORIGINS`, and the `node` of the stack that was open then.
            nodes: `stacks.NODES`.
            ranges: those of the nodes.
        """
        captured = captured.drop_nulls("node")
        distinct = captured.select("node", "began_ns").unique().sort("node", "began_ns")
        distinct = distinct.with_row_index("stack")
        here, inside = distinct, [_INSIDE.to_frame()]
        while not here.is_empty():
            at = nodes.select("parent", "range")[here["node"]]
            at = at.with_columns(ranges["start_ns"].gather(at["range"]))
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


def listed_captures(trace: Trace, origins: pl.DataFrame, options: Options) -> CaptureRanges:
    """The ranges of captures from before the recording, which the window's marks list.

    Args:
        trace: the report.
        origins: `graph_nodes.NODE_ORIGINS` that were captured while nothing recorded.
        options: of the analysis.
    """
    ranges = trace.graph_ranges
    if ranges.is_empty() or origins.is_empty():
        return CaptureRanges(
            stacks=_STACKS.to_frame(), inside=_INSIDE.to_frame(), ranges=pl.DataFrame()
        )
    before = replace(trace.without_rows(), ranges=ranges, overhead=trace.overhead.clear())
    events = in_order(before, options)
    open_ranges = OpenRanges.of(events, options)
    began_ns, last_ns = events.ranges["start_ns"].min(), events.last_ns
    asked = origins.join(events.threads.select("thread", "thread_no"), on="thread")
    asked = asked.filter(pl.col("time_ns").is_between(began_ns, last_ns))
    found = open_ranges.stacks_at(asked)
    nodes, composed = with_inherited(open_ranges.nodes, [found])
    node, began = placed_in(found, composed)["node"], pl.lit(began_ns, pl.Int64).alias("began_ns")
    return CaptureRanges.at(asked.with_columns(node, began), nodes, open_ranges.ranges)
