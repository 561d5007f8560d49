"""A program of one rank as one of many: the collectives that it asked for take their time (§14.25).

NCCL launches nothing where a group has one rank, but its ranges say what was asked for.
"""

from dataclasses import replace
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.events.activity import ranges_of_nccl, with_stated
from nsysflow.analysis.events.events import Events, in_order
from nsysflow.analysis.events.producers import STREAM_WAIT, event_waits
from nsysflow.analysis.frames.columns import greatest, matching
from nsysflow.analysis.frames.intervals import Axis, on_axis, rows_at_or_before
from nsysflow.analysis.options import Options
from nsysflow.analysis.replay.curve import Collectives, Curve
from nsysflow.analysis.replay.replay import Program, replay
from nsysflow.analysis.trace import Trace
from nsysflow.base.errors import SelectionError

LAUNCHED_NOTHING: Final = "ncclDevKernel (one rank: launched nothing)"
"""The name of an operation that stands for a collective."""

ROUNDS: Final = 4
"""So often the delay of work beside collectives is computed, each time of what the last one gave.
Steps of nine programs were within 0.12 % of what eight times gave (2026-11-29)."""

ASKED: Final = pl.Schema(
    {
        "start_ns": pl.Int64(),
        "thread": pl.Int64(),
        "process": pl.Int64(),
        "device": pl.Int32(),
        "stream": pl.Int64(),
        "correlation": pl.Int64(),
    }
)
"""A row per collective that was asked for and launched nothing: its range's start and thread, the
stream that it would run on, and the correlation id of the launch that stands for it."""
Asked = Annotated[pl.DataFrame, ASKED]


def with_collectives(trace: Trace, curve: Curve, options: Options) -> Trace:
    """A trace of one rank with a launch and an operation of no length for each collective that was
    asked for.

    Args:
        trace: as recorded.
        curve: which operations are known.
        options: of the analysis.

    Raises:
        SelectionError: no collective was asked for, or they ran between ranks.
    """
    events = in_order(trace, options)
    if (events.ops["part"] == "comm").any():
        seen = f"the collectives of {trace.report} run between ranks already"
        raise SelectionError(seen, *_RECORD_ONE)
    asked = _asked(events, curve)
    if asked.is_empty() and stated_collectives(events, curve).is_empty():
        raise SelectionError(f"no collective with its size is in {trace.report}", *_RECORD_ONE)
    at_launch = _with_launched(trace, asked, asked["start_ns"])
    begun = _starts(in_order(at_launch, options), asked)
    return _with_launched(trace, asked, begun)


_RECORD_ONE: Final = (
    "Record one rank of a program that asks NCCL for its collectives, as DDP does",
    "nsysflow profile -- torchrun --nproc-per-node 1 train.py",
)


def _asked(events: Events, curve: Curve) -> Asked:
    """The collectives that launched nothing. They run on the stream of the last call before them
    that launched something, or told a stream to wait."""
    axis, threads = events.axis, events.threads[["thread_no", "thread", "process"]]
    ranges = ranges_of_nccl(events).drop_nulls("bytes")
    ranges = ranges.filter(pl.col("operation").is_in(curve.operations))
    launched = axis.at(events.ops["thread_no"], events.ops["launch_start_ns"]).drop_nulls().sort()
    silent = launched.search_sorted(ranges["start"]) == launched.search_sorted(ranges["end"])
    ranges = ranges.filter(silent).sort("start")
    last = _streams_in_use(events).sort("place")
    found = ranges.join_asof(last, left_on="start", right_on="place")
    known = pl.concat([events.ops["correlation"], events.calls["correlation"]])
    first = greatest(known) + 1
    same_thread = axis.track(pl.col("start")) == pl.col("thread_no").cast(pl.Int64)
    return (
        found.filter(same_thread)
        .join(threads, on="thread_no", maintain_order="left")
        .with_columns(
            axis.time_ns(pl.col("start")).alias("start_ns"),
            (pl.int_range(pl.len(), dtype=pl.Int64) + first).alias("correlation"),
        )
        .match_to_schema(ASKED, extra_columns="ignore")
    )


def _streams_in_use(events: Events) -> pl.DataFrame:
    """The calls that launched something or told a stream to wait: `place` on the axis of threads,
    `thread_no`, and that `device` and `stream`."""
    axis, calls = events.axis, events.calls
    process = events.threads["process"][calls["thread_no"]]
    telling = calls.with_columns(process).filter(matching(calls["name"], STREAM_WAIT))
    waits = telling.join(events.trace.waits, on=["process", "correlation"])
    told = [
        rows.drop_nulls(["thread_no", time]).select(
            axis.at(pl.col("thread_no"), pl.col(time)).alias("place"),
            "thread_no",
            "device",
            "stream",
        )
        for rows, time in ((events.ops, "launch_start_ns"), (waits, "start_ns"))
    ]
    return pl.concat(told)


def _with_launched(trace: Trace, asked: Asked, begun_ns: pl.Series) -> Trace:
    """The trace with a launch, and an operation that begins then, for each that was asked for."""
    name = pl.lit(LAUNCHED_NOTHING, pl.Categorical())
    calls = asked.select(
        "start_ns",
        pl.col("start_ns").alias("end_ns"),
        "process",
        "thread",
        "correlation",
        pl.lit("cudaLaunchKernel", pl.Categorical()).alias("name"),
    )
    ops = asked.with_columns(
        pl.lit("kernel", trace.ops.schema["kind"]).alias("kind"),
        begun_ns.alias("start_ns"),
        begun_ns.alias("end_ns"),
        name.alias("name"),
        name.alias("short_name"),
        *(
            pl.lit(None, trace.ops.schema[column]).alias(column)
            for column in ("graph_node", "detail")
        ),
    )
    return replace(
        trace,
        calls=pl.concat([trace.calls, calls.select(trace.calls.columns)]),
        ops=pl.concat([trace.ops, ops.select(trace.ops.columns)]),
    )


def _starts(events: Events, asked: Asked) -> pl.Series:
    """When each can begin: after its launch, what was launched on its stream before, and what its
    stream was told to wait for."""
    ops = events.ops.with_columns(events.stream_no)
    edges = event_waits(events).edges
    ended = ops["end_ns"][edges["source"]].alias("awaited_ns")
    awaited = edges.hstack([ended]).group_by("op").agg(pl.col("awaited_ns").max())
    recorded = pl.when(pl.col("name") != LAUNCHED_NOTHING).then("end_ns")
    in_order_of_launch = (
        ops.drop_nulls("launch_start_ns")
        .sort("launch_start_ns", "op")
        .with_columns(recorded.cum_max().forward_fill().over("stream_no").alias("done_ns"))
        .join(awaited, on="op", how="left", maintain_order="left")
    )
    own_ops = in_order_of_launch.filter(pl.col("name") == LAUNCHED_NOTHING)
    earliest = pl.max_horizontal("launch_start_ns", "done_ns", "awaited_ns")
    begun = own_ops.select("correlation", earliest.cum_max().over("stream_no").alias("begun_ns"))
    return asked.join(begun, on="correlation", how="left", maintain_order="left")["begun_ns"]


def on_ranks(program: Program, events: Events, collectives: Collectives) -> Program:
    """A program with what its collectives take, and with the work beside them later.

    Args:
        program: of a trace of `with_collectives`, with all other changes.
        events: of that trace.
        collectives: what they take.
    """
    stated = stated_collectives(events, collectives.curve)
    times = [collectives.curve.at(*row) for row in stated[["operation", "bytes"]].rows()]
    gpu_ns = pl.Series([round(time.gpu_ns) for time in times], dtype=pl.Int64)
    host_ns = pl.Series([round(time.host_ns) for time in times], dtype=pl.Int64)
    delay = pl.Series([collectives.delay_of(time) for time in times], dtype=pl.Float64)
    ops, calls, op = program.ops, program.calls, stated["op"]
    asked = pl.DataFrame({"node": ops["node"][op], "host_ns": host_ns}).drop_nulls()
    asked = asked.group_by("node").agg(pl.col("host_ns").sum())
    cost_ns = calls["cost_ns"].scatter(
        asked["node"], calls["cost_ns"][asked["node"]] + asked["host_ns"]
    )
    alone = replace(
        program,
        ops=ops.with_columns(ops["length_ns"].scatter(op, gpu_ns)),
        calls=calls.with_columns(cost_ns),
    )
    compute = (events.ops["part"] == "compute").scatter(op, values=False)
    program = alone
    for _ in range(ROUNDS):
        later_ns = delays_ns(replay(program).ops, ops["device_no"], op, delay)
        slowed_ns = alone.ops["length_ns"] + later_ns.zip_with(compute, 0 * later_ns)
        program = replace(alone, ops=alone.ops.with_columns(slowed_ns.alias("length_ns")))
    return program


def stated_collectives(events: Events, curve: Curve) -> pl.DataFrame:
    """`op`, `operation`, `bytes` of the operations that are collectives of one rank, of which the
    curve has times: those that stand for one, and NCCL's copies."""
    ops = events.ops[["op", "kind", "name", "thread_no", "launch_start_ns"]]
    own = (pl.col("name") == LAUNCHED_NOTHING) | (pl.col("kind") == "memcpy")
    stated = with_stated(events, ops.filter(own)).drop_nulls("bytes")
    known = pl.col("operation").is_in(curve.operations)
    return stated.filter(known)[["op", "operation", "bytes"]]


def delays_ns(
    ran: pl.DataFrame, device_no: pl.Series, op: pl.Series, delay: pl.Series
) -> pl.Series:
    """How much later each operation ends because of the collectives `op` that run beside it."""
    first, last = ran.select(first=pl.min("start_ns"), last=pl.max("end_ns")).row(0)
    axis = Axis.over(first, last, margin_ns=0)
    placed = on_axis(ran.with_columns(device_no), axis)
    beside = placed[op].with_columns(delay.alias("delay")).sort("start")
    start = pl.max_horizontal("start", pl.col("end").cum_max().shift(1))
    beside = beside.with_columns(start).filter(pl.col("end") > pl.col("start"))
    caused = (pl.col("end") - pl.col("start")) * pl.col("delay")
    beside = beside.with_columns((caused.cum_sum() - caused).alias("before"))

    def until(places: pl.Series) -> pl.Series:
        at = rows_at_or_before(beside.with_columns(since="start"), "start", places)
        reached = pl.min_horizontal("place", "end") - pl.col("since")
        return at.select((pl.col("before") + reached * pl.col("delay")).fill_null(0)).to_series()

    later = until(placed["end"]) - until(placed["start"])
    return later.round().cast(pl.Int64)
