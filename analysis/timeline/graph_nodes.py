"""When and on which thread the nodes of CUDA graphs were made (spec §7.13)."""

from typing import Final

import polars as pl

from nsysflow.analysis.timeline.events import Events
from nsysflow.analysis.timeline.stream_captures import capture_began

NODE_ORIGINS: Final = pl.Schema(
    {
        "process": pl.Int64(),
        "graph_node": pl.Int64(),
        "thread": pl.Int64(),
        "time_ns": pl.Int64(),
        "began_ns": pl.Int64(),
    }
)
"""Nodes that operations belong to, with the thread and time at which they were made, and when the
stream capture began that was active then; null where the report has none."""


def node_origins(events: Events) -> pl.DataFrame:
    """`NODE_ORIGINS` of a trace, without those that the report does not have."""
    created = events.trace.graph_nodes
    used = events.ops.lazy().select("process", node="graph_node").drop_nulls().unique().collect()
    if created.is_empty() or used.is_empty():
        return NODE_ORIGINS.to_frame()
    origins = _origins(_by_node(created)).drop_nulls("thread")
    found = used.sort("process", "node").join(origins, on=["process", "node"])
    found = found.with_columns(capture_began(found, events).alias("began_ns"))
    return found.rename({"node": "graph_node", "start_ns": "time_ns"}).match_to_schema(NODE_ORIGINS)


def captured_before(events: Events, origins: pl.DataFrame) -> int:
    """How many operations have an origin from before the first call, in a process in which our
    runtime did not open the window: it would have listed the ranges of that capture."""
    if origins.is_empty():
        return 0
    ours = events.trace.captures["process"]
    first_ns = pl.lit(events.calls["start_ns"].min(), pl.Int64)
    before = (pl.col("time_ns") < first_ns) & ~pl.col("process").is_in(ours.implode())
    unknown = origins.filter(before)
    if unknown.is_empty():
        return 0
    return len(events.ops.join(unknown, on=["process", "graph_node"], how="semi"))


def _by_node(created: pl.DataFrame) -> pl.DataFrame:
    """Each node once, numbered `at`: its first creation and its first original."""
    first = created.drop_nulls("process").sort("start_ns", maintain_order=True)
    return (
        first.group_by("process", "node", maintain_order=True)
        .agg(pl.col("start_ns", "thread").first(), pl.col("original").drop_nulls().first())
        .with_row_index("at")
    )


def _origins(nodes: pl.DataFrame) -> pl.DataFrame:
    """`process`, `node` with `start_ns` and `thread` of the node at the end of its chain of
    originals. A chain that returns to itself, or to a node that the report lacks, has no end."""
    numbers = nodes.select("process", "at", original="node")
    above = nodes.join(numbers, on=["process", "original"], how="left", maintain_order="left")
    is_origin = pl.col("original").is_null()
    origin = above.select(pl.when(is_origin).then("at").otherwise("at_right")).to_series()
    for _ in range(len(nodes).bit_length()):  # each pass doubles how far the chain was followed
        origin = origin.gather(origin)
    ends = nodes.select(is_origin).to_series().gather(origin).fill_null(value=False)
    times = nodes.select("start_ns", "thread")[origin]
    return nodes.select("process", "node").hstack(times.get_columns()).filter(ends)
