"""CUDA graphs: when their nodes were made, when work was captured, and times that are wrong."""

from dataclasses import dataclass
from typing import Annotated, Final, Self

import polars as pl

from nsysflow.analysis.causes import RUNTIME
from nsysflow.analysis.events.classes import QUEUE_DELAY_NS
from nsysflow.analysis.events.events import Events, Operations, stream_numbers
from nsysflow.analysis.frames.columns import matching
from nsysflow.analysis.frames.intervals import merge, reached_before

_CAPTURE: Final = f"^{RUNTIME}Stream(?:Begin|End)Capture"


def capture_began(rows: pl.DataFrame, events: Events) -> pl.Series:
    """When the stream capture began that was on in the process of each of `rows` (`process`,
    `start_ns`); null where none was. Any thread of the process may capture."""
    marks = _marks(events)
    asked = rows[["process", "start_ns"]].with_row_index("row").sort("start_ns", "row")
    # the last begin or end of a capture before a row says whether one was on
    latest = asked.join_asof(
        marks, on="start_ns", by="process", allow_exact_matches=False, check_sortedness=False
    )
    return latest.sort("row")["began_ns"]


MOSTLY_CAPTURES_PCT: Final = 50
"""Engines capture their graphs at start-up. A program that is recorded whole does so for less."""


def captures(events: Events) -> pl.DataFrame:
    """`start`, `end` of every stream capture in the recording, from its begin to the next begin or
    end of one in its process."""
    until = pl.col("start_ns").shift(-1).over("process").fill_null(events.last_ns)
    marks = _marks(events).with_columns(until.alias("end"))
    return marks.drop_nulls("began_ns").select(pl.col("began_ns").alias("start"), "end")


@dataclass(frozen=True, kw_only=True)
class CapturingTime:
    """How long graphs were being captured since the first operation (spec §12.11).

    Attributes:
        part_ns: the time in captures.
        whole_ns: all time.
    """

    part_ns: int
    whole_ns: int

    @property
    def is_most(self) -> bool:
        """Whether the recording is mostly of captures."""
        return 100 * self.part_ns >= MOSTLY_CAPTURES_PCT * self.whole_ns > 0


def capturing_time(events: Events) -> CapturingTime:
    """How long graphs were being captured."""
    taken = captures(events)
    if events.ops.is_empty() or taken.is_empty():
        return CapturingTime(part_ns=0, whole_ns=0)
    begun_ns, last_ns = events.ops.select(pl.min("start_ns")).item(), events.last_ns
    within = merge(taken.select(pl.col("start", "end").clip(begun_ns, last_ns)))
    part_ns = within.select(pl.sum("end") - pl.sum("start")).item()
    return CapturingTime(part_ns=part_ns, whole_ns=last_ns - begun_ns)


def _marks(events: Events) -> pl.DataFrame:
    """`process`, `start_ns` of every begin and end of a capture, in order; `began_ns` of begins."""
    calls = events.calls.filter(matching(events.calls["name"], _CAPTURE))
    process = events.threads["process"][calls["thread_no"]].alias("process")
    name = pl.col("name").cast(pl.String)
    order = ["start_ns", -pl.col("end_ns"), "correlation", "thread_no", name]
    begins = name.str.contains("Begin")
    return (
        calls.with_columns(process, pl.when(begins).then("start_ns").alias("began_ns"))
        .sort(order, nulls_last=True)
        .select("process", "start_ns", "began_ns")
    )


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
NodeOrigins = Annotated[pl.DataFrame, NODE_ORIGINS]

CAPTURED_NODES: Final = pl.Schema({**NODE_ORIGINS, "thread_no": pl.UInt32()})
"""Those that were captured while the report recorded."""
CapturedNodes = Annotated[pl.DataFrame, CAPTURED_NODES]


def node_origins(events: Events) -> NodeOrigins:
    """Where the nodes of a trace come from, without those that the report does not have."""
    created = events.trace.graph_nodes
    used = events.ops.lazy().select("process", node="graph_node").drop_nulls().unique().collect()
    if created.is_empty() or used.is_empty():
        return NODE_ORIGINS.to_frame()
    origins = _origins(_by_node(created)).drop_nulls("thread")
    nodes = used.sort("process", "node").join(origins, on=["process", "node"])
    nodes = nodes.with_columns(capture_began(nodes, events).alias("began_ns"))
    return nodes.rename({"node": "graph_node", "start_ns": "time_ns"}).match_to_schema(NODE_ORIGINS)


def captured_before(events: Events, origins: NodeOrigins) -> int:
    """How many operations have an origin from before the first call, in a process of which no
    ranges of captures are listed, and in which our runtime did not open the window: it would have
    listed them."""
    if origins.is_empty():
        return 0
    trace = events.trace
    ours = pl.concat([trace.captures["process"], trace.graph_ranges["process"]])
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
        origin = origin[origin]
    ends = nodes.select(is_origin).to_series()[origin].fill_null(value=False)
    times = nodes[["start_ns", "thread"]][origin]
    return nodes[["process", "node"]].hstack(times.get_columns()).filter(ends)


LONG_GRAPH_KERNEL: Final = 100
"""A kernel of a graph that lasts this many times the median of its node has a wrong time stamp: in
the replays of six real reports none lasted over 1.7 times (H200, 2026-11)."""


@dataclass(frozen=True, kw_only=True)
class WrongTimes:
    """Rows of operations whose times cannot be right.

    Attributes:
        into_others: operations of a graph during which one of another launch starts on their
            stream.
        long: kernels of a graph that last over 100 times the median of the same node.
    """

    into_others: pl.Series
    long: pl.Series

    @classmethod
    def of(cls, ops: Operations) -> Self:
        """Those of `ops`."""
        none = ops["op"].clear()
        if not ops["graph_node"].count():
            return cls(into_others=none, long=none)
        return cls(into_others=_into_other_launches(ops), long=_long_kernels(ops))

    @property
    def rows(self) -> pl.Series:
        """All of them."""
        return pl.concat([self.into_others, self.long]).unique()


def _into_other_launches(ops: Operations) -> pl.Series:
    """Operations of a graph during which one of another launch starts on their stream."""
    rows = _on_streams_of_graphs(ops)
    another = pl.col("correlation").ne_missing(pl.col("correlation").shift(1))
    early = pl.col("start_ns") < reached_before(pl.col("end_ns"))
    if not rows.select((another & early).over("stream_no").any()).item():
        return rows["op"].clear()
    # in this order, the next operation of another launch is the first of the next run
    rows = rows.sort("stream_no", "start_ns", "op").with_columns(
        pl.struct("stream_no", "correlation").rle_id().alias("run")
    )
    runs = (
        rows.group_by("run", "stream_no", maintain_order=True)
        .agg(pl.col("start_ns").first().alias("begun"), pl.col("start_ns").last().alias("last"))
        .select(
            "run",
            pl.col("begun").shift(-1).over("stream_no").alias("next"),
            pl.col("last").shift(1).over("stream_no").alias("before"),
        )
    )
    into = (pl.col("next") < pl.col("end_ns")) | (pl.col("before") == pl.col("start_ns"))
    graph = rows.filter(pl.col("graph_node").is_not_null())
    return graph.join(runs, on="run").filter(into)["op"]


def _on_streams_of_graphs(ops: Operations) -> pl.DataFrame:
    """Operations of some length on streams that graphs use, with `stream_no`."""
    numbers = stream_numbers(ops)
    used = numbers.filter(ops["graph_node"].is_not_null()).unique()
    return (
        ops.lazy()
        .with_columns(numbers)
        .filter(
            pl.col("stream_no").is_in(used.implode()),
            pl.col("end_ns") > pl.col("start_ns"),
            pl.col("process").is_not_null() & pl.col("stream").is_not_null(),
        )
        .select("op", "graph_node", "correlation", "start_ns", "end_ns", "stream_no")
        .collect()
    )


def _long_kernels(ops: Operations) -> pl.Series:
    """Kernels of a graph that last over 100 times the median of the same node."""
    kernels = ops[["op", "kind", "process", "graph_node", "name", "start_ns", "end_ns"]]
    kernels = kernels.filter(pl.col("kind") == "kernel", pl.col("graph_node").is_not_null())
    lasts = pl.col("end_ns") - pl.col("start_ns")
    median = lasts.median().over("process", "graph_node", "name")
    return kernels.filter(lasts > LONG_GRAPH_KERNEL * median)["op"]


GRAPH_NODE_NS: Final = 500
"""The time that a CUDA graph takes per operation, in addition to the operation's duration. On five
real graphs the estimates were off by +10, +6, +14, -3 and -2 %."""


LACKING_LAUNCHES: Final = pl.Schema(
    {"process": pl.Int64(), "correlation": pl.Int64(), "lacks": pl.Int64()}
)
"""Launches of which something is not in the report: `lacks` operations that other launches of the
same graph have; or, with `lacks` 0, what the first operation of a stream waited for."""
LackingLaunches = Annotated[pl.DataFrame, LACKING_LAUNCHES]


def lacking_launches(ops: Operations) -> LackingLaunches:
    """Those of `ops`.

    A launch is of the graph that its most frequent node names, of equal ones the smallest.
    """
    of_launch, of_node = ["process", "correlation"], ["process", "graph_node"]
    rows = ops.filter(pl.col("graph_node").is_not_null())[[*of_launch, "graph_node"]].unique()
    count = pl.len().over(of_node).alias("count")
    first = pl.col("graph_node").sort_by("count", "graph_node", descending=[True, False]).first()
    named = rows.with_columns(count).with_columns(first.over(of_launch).alias("graph"))
    nodes = named.group_by("process", "graph").agg(pl.col("graph_node").n_unique().alias("nodes"))
    had = named.group_by(*of_launch, "graph").len().join(nodes, on=["process", "graph"])
    lacks = (pl.col("nodes").cast(pl.Int64) - pl.col("len")).alias("lacks")
    found = had.select(*of_launch, lacks).filter(pl.col("lacks") > 0)
    return found.match_to_schema(LACKING_LAUNCHES)


def unseen_waits(events: Events, latest: pl.Series) -> LackingLaunches:
    """The launches of the first operation of a stream, where nothing that it waited for ended right
    before it: it waited for what was launched before the recording.

    Args:
        events: the trace.
        latest: of its producers.
    """
    first = events.stream_no.is_first_distinct()
    seen = events.ops["end_ns"][latest] + QUEUE_DELAY_NS >= events.ops["start_ns"]
    return (
        events.ops.filter(first & ~seen.fill_null(value=False))[["process", "correlation"]]
        .unique(maintain_order=True)
        .with_columns(pl.lit(0, pl.Int64).alias("lacks"))
        .match_to_schema(LACKING_LAUNCHES)
    )
