"""A recorded trace as a program that can be replayed."""

from dataclasses import dataclass

import polars as pl

from nsysflow.analysis.replay.dependencies.host import host_calls
from nsysflow.analysis.replay.dependencies.operations import bound_operations, placed_operations
from nsysflow.analysis.replay.dependencies.queue import with_queue
from nsysflow.analysis.replay.dependencies.waits import with_waits
from nsysflow.analysis.timeline.events import Events


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


def recorded(events: Events) -> Recorded:
    """The program that a trace is of."""
    host = host_calls(events)
    ops = placed_operations(events, host)
    named = events.event_waits
    node = host.node_of_call.gather(named.hosts["call"]).alias("node")
    waits = named.hosts.with_columns(node).drop_nulls("node").unique("node", keep="first")
    calls = with_queue(with_waits(host.calls, ops, waits), ops)
    bound = bound_operations(ops, named.edges)
    program = Program(
        calls=calls, ops=bound.ops, edges=bound.edges, usual_lag_ns=bound.usual_lag_ns
    )
    return Recorded(program=program, node_of_call=host.node_of_call, missing=named.missing)
