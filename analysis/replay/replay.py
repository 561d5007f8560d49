"""The replay itself: the longest path to the start and end of every call and operation.

Everything becomes a node with at most two bounds, `source + lag`; its time is the later of them. In
the order of the recorded times each node comes after its sources, so one pass suffices. A plain
loop over four lists takes 0.25 us a node; no frame library does a recurrence faster.
"""

from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.replay.dependencies.program import Program

NEVER_NS: Final = -(1 << 62)
"""A bound that never binds."""

_NODES: Final = pl.Schema(
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
        return _longest_paths(*(self.bounds[name].to_list() for name in ("a", "a_ns", "b", "b_ns")))


def replay(program: Program) -> Times:
    """Run a program: every call and operation as early as what it waits for allows."""
    network, calls, ops = network_of(program), program.calls, program.ops
    reached = pl.Series(network.reached_ns(), dtype=pl.Int64)
    start, done = reached.gather(network.calls), reached.gather(network.ops)
    end = (start + calls["cost_ns"]).scatter(network.held, reached.gather(network.returns))
    return Times(
        calls=pl.DataFrame({"start_ns": start, "end_ns": end}),
        ops=pl.DataFrame({"start_ns": done - ops["length_ns"], "end_ns": done}),
    )


def network_of(program: Program) -> Network:
    """The nodes of a program."""
    calls, ops, edges = program.calls, _with_order(program.ops), program.edges
    first_return = 1 + len(calls)
    held = calls.filter(pl.col("after").is_not_null()).select("node").to_series()
    first_edge = first_return + len(held)
    first_op = first_edge + len(edges)
    returns = pl.repeat(None, len(calls), dtype=pl.UInt32, eager=True).scatter(
        held, pl.int_range(first_return, first_edge, dtype=pl.UInt32, eager=True)
    )
    nodes = pl.concat(
        [
            _NODES.to_frame().clear(1),
            _call_nodes(calls, returns),
            _return_nodes(calls, held, first_op),
            _edge_nodes(ops, edges, first_edge, first_op),
            _operation_nodes(ops, edges, first_edge, first_op),
        ]
    )
    bounds, place = _in_order(nodes)
    return Network(
        bounds=bounds,
        calls=place.slice(1, len(calls)),
        held=held,
        returns=place.slice(first_return, len(held)),
        ops=place.slice(first_op),
    )


def _key(time: pl.Expr, kind: int) -> pl.Expr:
    return (time * len((_RETURN, _CALL, _EDGE, _OPERATION)) + kind).alias("key")


def _nodes(frame: pl.DataFrame, **columns: pl.Expr) -> pl.DataFrame:
    none = {name: pl.lit(None, dtype) for name, dtype in _NODES.items()}
    return frame.select(
        expr.cast(_NODES[name]).alias(name) for name, expr in (none | columns).items()
    )


def _call_nodes(calls: pl.DataFrame, returns: pl.Series) -> pl.DataFrame:
    """The starts of calls: each after the end of the call before it, and of the one before it on
    its thread where that is another."""
    columns: dict[str, pl.Expr] = {}
    for side, pred in (("a", calls["pred"]), ("b", calls["before"])):
        ended = pl.lit(returns.gather(pred))
        begun = pl.lit((pred + 1).cast(pl.UInt32))
        cost = pl.when(ended.is_null()).then(pl.lit(calls["cost_ns"].gather(pred))).otherwise(0)
        columns |= {side: pl.coalesce(ended, begun), f"{side}_ns": cost}
    other = pl.col("before") != pl.col("pred")
    return _nodes(
        calls,
        key=_key(pl.col("start_ns"), _CALL),
        a=columns["a"],
        a_ns=columns["a_ns"] + pl.col("work_ns"),
        b=pl.when(other).then(columns["b"]),
        b_ns=columns["b_ns"],
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
    ops: pl.DataFrame, edges: pl.DataFrame, first_edge: int, first_op: int
) -> pl.DataFrame:
    """A node before an operation for each of its edges (sorted by operation): the later of the edge
    and of the node before it, which is the launch or another edge."""
    begun = ops.select("node", "lag_ns", "start_ns", "known_ns")[edges["op"]]
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
    ops: pl.DataFrame, edges: pl.DataFrame, first_edge: int, first_op: int
) -> pl.DataFrame:
    """The ends of operations: after their launch (or last edge), and after the one before them."""
    last = pl.repeat(None, len(ops), dtype=pl.UInt32, eager=True).scatter(
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


def _in_order(nodes: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """The bounds of `Network`, and the place of each node. A node cannot wait for a later one: such
    a bound, which only damaged reports have, is dropped."""
    order = nodes["key"].fill_null(-(1 << 63)).arg_sort()
    place = pl.repeat(0, len(nodes), dtype=pl.UInt32, eager=True).scatter(
        order, pl.int_range(len(nodes), dtype=pl.UInt32, eager=True)
    )
    sorted_nodes = nodes[order].with_columns(
        pl.lit(place.gather(nodes["a"].gather(order))).alias("a"),
        pl.lit(place.gather(nodes["b"].gather(order))).alias("b"),
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


def _longest_paths(a: list[int], a_ns: list[int], b: list[int], b_ns: list[int]) -> list[int]:
    """The time of each node: the later of its two bounds. Sources stand before their targets."""
    reached: list[int] = []
    reach = reached.append
    reach(0)
    rows = zip(a, a_ns, b, b_ns, strict=True)
    next(rows)
    for one, one_ns, other, other_ns in rows:
        first = reached[one] + one_ns
        second = reached[other] + other_ns
        reach(first if first > second else second)
    return reached
