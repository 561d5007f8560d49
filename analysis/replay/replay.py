"""The replay itself: the longest path to the start and end of every call and operation."""

from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.frames.columns import repeated
from nsysflow.analysis.frames.intervals import Cover, merge
from nsysflow.analysis.replay.batches import with_batches, with_feeds
from nsysflow.analysis.replay.calls import host_calls, with_queue, with_waits
from nsysflow.analysis.replay.operations import LaggedEdges, bound_operations, placed_operations
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.steps.kinds import judged_steps


@dataclass(frozen=True, kw_only=True)
class Program:
    """A trace as who waits for whom.

    Attributes:
        calls: of `Host`, with `after` and `after_ns`.
        ops: of `Operations`.
        edges: of `Operations`.
        usual_lag_ns: of `Operations`.
    """

    calls: pl.DataFrame
    ops: pl.DataFrame
    edges: pl.DataFrame
    usual_lag_ns: int


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What a trace did, and who waited for whom.

    Attributes:
        program: calls, operations and edges; replayed unchanged it gives the recorded times.
        node_of_call: for each call of the events its row in `program.calls`, or null.
        missing: stream waits whose event the report does not name.
    """

    program: Program
    node_of_call: pl.Series
    missing: int


def recorded(timeline: Timeline) -> Recorded:
    """The program that a trace is of."""
    host = host_calls(timeline.events)
    ops = placed_operations(timeline.events, host)
    named = timeline.event_waits
    node = host.node_of_call[named.hosts["call"]].alias("node")
    waits = named.hosts.with_columns(node).drop_nulls("node").unique("node", keep="first")
    called = with_feeds(with_batches(host.calls, timeline.events), timeline.events)
    calls = with_queue(with_waits(called, ops, waits), ops)
    bound = bound_operations(ops, named.edges)
    program = Program(
        calls=calls, ops=bound.ops, edges=bound.edges, usual_lag_ns=bound.usual_lag_ns
    )
    return Recorded(program=program, node_of_call=host.node_of_call, missing=named.missing)


NEVER_NS: Final = -(1 << 62)
"""A bound that never binds."""

NODES: Final = pl.Schema(
    {
        "key": pl.Int64(),
        "a": pl.UInt32(),
        "a_ns": pl.Int64(),
        "b": pl.UInt32(),
        "b_ns": pl.Int64(),
        "recorded_ns": pl.Int64(),
    }
)
"""`key` orders nodes; `a` and `b` are rows of sources, null without one; `recorded_ns` holds where
there is no source. Row 0 is the origin of time."""

_RETURN, _CALL, _EDGE, _OPERATION = range(4)
"""What comes first of nodes of one time."""

KINDS_OF_NODES: Final = 4
"""A node's `key` is its time, times this, plus its kind."""


@dataclass(frozen=True, kw_only=True)
class Times:
    """When everything begins and ends in a replay: `start_ns`, `end_ns`, row by row."""

    calls: pl.DataFrame
    ops: pl.DataFrame


@dataclass(frozen=True, kw_only=True)
class Network:
    """A program as nodes, each reached at the later of its two bounds, in the order of time.

    Attributes:
        bounds: per node its two bounds. `a`, `b`: the places of the nodes it waits for, which stand
            before it. `a_ns`, `b_ns`: how long after those it is reached; `NEVER_NS` for a bound
            that does not exist.
        calls: the place at which each call starts.
        held: the calls that wait for an operation.
        returns: the places at which the calls of `held` end.
        ops: the place at which each operation ends.
    """

    bounds: pl.DataFrame
    calls: pl.Series
    held: pl.Series
    returns: pl.Series
    ops: pl.Series

    def reached_ns(self) -> list[int]:
        """When each node is reached."""
        return longest_paths(self.bounds)


def replay(program: Program) -> Times:
    """Run a program: every call and operation as early as what it waits for allows."""
    network, calls, ops = network_of(program), program.calls, program.ops
    reached = pl.Series(network.reached_ns(), dtype=pl.Int64)
    start, done = reached[network.calls], reached[network.ops]
    end = (start + calls["cost_ns"]).scatter(network.held, reached[network.returns])
    return Times(
        calls=pl.DataFrame({"start_ns": start, "end_ns": end}),
        ops=pl.DataFrame({"start_ns": done - ops["length_ns"], "end_ns": done}),
    )


def network_of(program: Program) -> Network:
    """The nodes of a program, in the order of time."""
    nodes = nodes_of(program)
    order = nodes.rows.select(pl.col("key").fill_null(-(1 << 63)).arg_sort()).to_series()
    bounds, place = in_order(nodes.rows, order)
    return Network(
        bounds=bounds,
        calls=place.slice(1, len(program.calls)),
        held=nodes.held,
        returns=place.slice(nodes.first_return, len(nodes.held)),
        ops=place.slice(nodes.first_op),
    )


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """The nodes of a program: the origin, its calls, returns, edges and operations.

    Attributes:
        rows: of `NODES`.
        held: the calls that wait for an operation, whose returns are nodes from `first_return` on.
        first_return: the row of the first return.
        first_op: the row at which the first operation ends; the others follow.
    """

    rows: pl.DataFrame
    held: pl.Series
    first_return: int
    first_op: int


def nodes_of(program: Program) -> Nodes:
    """The nodes of a program, not sorted yet."""
    calls, ops, edges = program.calls, _with_order(program.ops), program.edges
    first_return = 1 + len(calls)
    waiting = calls.filter(pl.col("after").is_not_null())[["node"]].to_series()
    first_edge = first_return + len(waiting)
    first_op = first_edge + len(edges)
    returns = repeated(None, len(calls), pl.UInt32).scatter(
        waiting, pl.int_range(first_return, first_edge, dtype=pl.UInt32, eager=True)
    )
    rows = pl.concat(
        [
            pl.DataFrame([(None,) * len(NODES)], NODES, orient="row"),
            _call_nodes(calls, returns),
            _return_nodes(calls, waiting, first_op),
            _edge_nodes(ops, edges, first_edge, first_op),
            _operation_nodes(ops, edges, first_edge, first_op),
        ]
    )
    return Nodes(rows=rows, held=waiting, first_return=first_return, first_op=first_op)


def _key(time: pl.Expr, kind: int) -> pl.Expr:
    return (time * KINDS_OF_NODES + kind).alias("key")


def _nodes(frame: pl.DataFrame, **columns: pl.Expr) -> pl.DataFrame:
    return frame.select(columns[name].cast(dtype).alias(name) for name, dtype in NODES.items())


def _call_nodes(calls: pl.DataFrame, returns: pl.Series) -> pl.DataFrame:
    """The starts of calls: each after the end of the call before it, and of the one before it on
    its thread where that is another. One that waits for a batch starts no earlier than recorded,
    or so much later; one that uses a batch no earlier than workers can have made it."""
    columns: dict[str, pl.Expr] = {}
    for side, pred in (("a", calls["pred"]), ("b", calls["before"])):
        ended = pl.lit(returns[pred])
        begun = pl.lit((pred + 1).cast(pl.UInt32))
        cost = pl.when(ended.is_null()).then(pl.lit(calls["cost_ns"][pred])).otherwise(0)
        columns |= {side: pl.coalesce(ended, begun), f"{side}_ns": cost}
    other = pl.col("before") != pl.col("pred")
    waits = pl.col("batch_ns").is_not_null() & pl.col("paced")
    fed = pl.col("fed_after").is_not_null()
    wait_ns = pl.when(~pl.col("paced")).then("batch_ns").fill_null(0)
    return _nodes(
        calls,
        key=_key(pl.col("start_ns"), _CALL),
        a=columns["a"],
        a_ns=columns["a_ns"] + pl.col("work_ns") + wait_ns,
        b=pl.when(waits)
        .then(0)
        .when(fed)
        .then(pl.col("fed_after") + 1)
        .when(other)
        .then(columns["b"]),
        b_ns=pl.when(waits).then("start_ns").when(fed).then("feed_ns").otherwise(columns["b_ns"]),
        recorded_ns=pl.col("work_ns"),
    )


def _return_nodes(calls: pl.DataFrame, held: pl.Series, first_op: int) -> pl.DataFrame:
    """The ends of calls that wait for an operation."""
    return _nodes(
        calls[held],
        key=_key(pl.col("end_ns"), _RETURN),
        a=pl.col("node") + 1,
        a_ns=pl.col("cost_ns"),
        b=pl.col("after") + first_op,
        b_ns=pl.col("after_ns"),
        recorded_ns=pl.col("end_ns"),
    )


def _edge_nodes(
    ops: pl.DataFrame, edges: LaggedEdges, first_edge: int, first_op: int
) -> pl.DataFrame:
    """A node before an operation for each of its edges (sorted by operation): the later of the edge
    and of the node before it, which is the launch or another edge."""
    begun = ops[["node", "lag_ns", "start_ns", "known_ns"]][edges["op"]]
    again = (pl.col("op") == pl.col("op").shift(1)).fill_null(value=False)
    row = pl.int_range(pl.len(), dtype=pl.Int64)
    return _nodes(
        begun.hstack(edges.rename({"lag_ns": "edge_ns"})),
        key=_key(pl.col("known_ns"), _EDGE),
        a=pl.when(again).then(row - 1 + first_edge).otherwise(pl.col("node").cast(pl.Int64) + 1),
        a_ns=pl.when(again).then(0).otherwise("lag_ns"),
        b=pl.col("source") + first_op,
        b_ns=pl.col("edge_ns"),
        recorded_ns=pl.col("start_ns"),
    )


def _operation_nodes(
    ops: pl.DataFrame, edges: LaggedEdges, first_edge: int, first_op: int
) -> pl.DataFrame:
    """The ends of operations: after their launch (or last edge), and after the one before them."""
    last = repeated(None, len(ops), pl.UInt32).scatter(
        edges["op"], pl.int_range(first_edge, first_op, dtype=pl.UInt32, eager=True)
    )
    length = pl.col("length_ns")
    return _nodes(
        ops,
        key=_key(pl.col("known_ns"), _OPERATION),
        a=pl.coalesce(pl.lit(last), pl.col("node") + 1),
        a_ns=pl.when(pl.lit(last).is_null()).then("lag_ns").otherwise(0) + length,
        b=pl.col("prev") + first_op,
        b_ns=pl.col("gap_ns") + length,
        recorded_ns=pl.col("start_ns") + length,
    )


def _with_order(ops: pl.DataFrame) -> pl.DataFrame:
    """`ops` plus `known_ns`, by which the replay orders them: their start. Where clocks differ one
    may start before its launch, and then it and its stream come after that."""
    begun = ops["start_ns"]
    early = (begun < ops["launch_start_ns"]).fill_null(value=False)
    if not early.any():
        return ops.with_columns(begun.alias("known_ns"))
    later = pl.max_horizontal("start_ns", "launch_start_ns").cum_max().over("stream_no")
    return ops.with_columns(later.alias("known_ns"))


def in_order(nodes: pl.DataFrame, order: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
    """The bounds of `Network`, and the place of each node. A node cannot wait for a later one: such
    a bound, which only damaged reports have, is dropped.

    Args:
        nodes: of `NODES`.
        order: their rows in the order of time.
    """
    place = repeated(0, len(nodes), pl.UInt32).scatter(
        order, pl.int_range(len(nodes), dtype=pl.UInt32, eager=True)
    )
    sorted_nodes = nodes[order].with_columns(
        pl.lit(place[nodes["a"][order]]).alias("a"),
        pl.lit(place[nodes["b"][order]]).alias("b"),
    )
    here = pl.int_range(pl.len(), dtype=pl.UInt32)
    a, b = (pl.when(pl.col(name) < here).then(name) for name in ("a", "b"))
    bounds = sorted_nodes.with_columns(a, b).select(
        pl.col("a", "b").fill_null(0),
        pl.when(pl.col("a").is_not_null())
        .then("a_ns")
        .when(pl.col("b").is_null())
        .then("recorded_ns")
        .otherwise(NEVER_NS)
        .fill_null(0)
        .alias("a_ns"),
        pl.when(pl.col("b").is_not_null()).then("b_ns").otherwise(NEVER_NS).alias("b_ns"),
    )
    return bounds, place


def longest_paths(bounds: pl.DataFrame) -> list[int]:
    """The time of each node: the later of its two bounds. Sources stand before their targets."""
    reached: list[int] = []
    reach = reached.append
    reach(0)
    rows = zip(*(bounds[name].to_list() for name in ("a", "a_ns", "b", "b_ns")), strict=True)
    next(rows)
    for one, one_ns, other, other_ns in rows:
        first = reached[one] + one_ns
        second = reached[other] + other_ns
        reach(first if first > second else second)
    return reached


_KEY = ["process", "device", "step"]


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """How long things take.

    Attributes:
        window_ns: from the first operation to the end of the last one, on all devices.
        step_ns: the mean of the steady steps, or of those that were asked for, on the device where
            it is longest; None where there are none.
        steps: how many steps that mean is of.
        selected: whether steps were asked for.
    """

    window_ns: int
    step_ns: int | None
    steps: int
    selected: bool = False


def lengths(timeline: Timeline, ops: pl.DataFrame | None = None) -> Lengths:
    """The lengths as recorded, or with operations at other times.

    Args:
        timeline: the trace.
        ops: `start_ns` and `end_ns` of its operations, in their order.
    """
    wanted = timeline.options.steps
    steps = slowest_steps(timeline, ops)
    if ops is None:
        ops = timeline.events.ops
    count = len(steps)
    step_ns = round(int((steps["end_ns"] - steps["start_ns"]).sum()) / count) if count else None
    lasting = ops.filter(pl.col("end_ns") > pl.col("start_ns"))
    first, last = lasting.select(first=pl.min("start_ns"), last=pl.max("end_ns")).row(0)
    window_ns = 0 if first is None else last - first
    return Lengths(window_ns=window_ns, step_ns=step_ns, steps=count, selected=bool(wanted))


def slowest_steps(timeline: Timeline, ops: pl.DataFrame | None = None) -> pl.DataFrame:
    """The steps that `Lengths.step_ns` is the mean of: those of the process and device where it is
    longest.

    Args:
        timeline: the trace.
        ops: as `lengths` takes them.
    """
    steps: pl.DataFrame = judged_steps(timeline.steps, timeline.options.steps)
    if ops is not None:
        steps = timeline.steps_with(ops).join(steps, on=_KEY, how="semi")
    mean_ns = (pl.col("end_ns") - pl.col("start_ns")).mean()
    means = steps.group_by("process", "device").agg(mean_ns.alias("mean_ns"), n=pl.len())
    slowest = means.sort("mean_ns", "n", "process", "device").tail(1)
    return steps.join(slowest, on=["process", "device"], how="semi")


def busy_of(ops: pl.DataFrame) -> Cover:
    """When one of these operations of one GPU runs."""
    return Cover(merge(pl.DataFrame({"start": ops["start_ns"], "end": ops["end_ns"]})))


def part_of(timeline: Timeline, from_ns: int, to_ns: int, *, step: str | None) -> Timeline:
    """What the host did in `[from_ns, to_ns)`, and the operations that it launched meanwhile.

    The first operations start when they did: what the GPU still had to do before is not in it.

    Args:
        timeline: the whole trace.
        from_ns: when the part begins, on the host.
        to_ns: when it ends.
        step: the range that is one step, so that a part with few of them has steps too.
    """
    events, trace = timeline.events, timeline.trace
    begun = pl.col("start_ns").is_between(from_ns, to_ns, closed="left")
    threads = events.threads.select("thread_no", "thread", "process")
    calls = events.calls.filter(begun).join(threads, on="thread_no", maintain_order="left")
    launched = pl.coalesce("launch_start_ns", "start_ns")
    ops = events.ops.filter(launched.is_between(from_ns, to_ns, closed="left"))
    open_meanwhile = (pl.col("start_ns") < to_ns) & (pl.col("end_ns") > from_ns)
    ranges = events.ranges.filter(open_meanwhile).with_columns(
        pl.when("ended").then("end_ns").alias("end_ns")
    )
    rows = replace(
        trace,
        ops=ops.select(schema.OPS.names()),
        calls=calls.select(schema.CALLS.names()),
        ranges=ranges.select(schema.RANGES.names()),
        overhead=events.overhead.filter(begun).select(schema.OVERHEAD.names()),
    )
    if timeline.inferred_steps.is_empty():
        return Timeline(rows, replace(timeline.options, step=step, steps=()))
    inferred = timeline.inferred_steps.filter(begun)
    return Timeline(rows, replace(timeline.options, steps=()), inferred=inferred)
