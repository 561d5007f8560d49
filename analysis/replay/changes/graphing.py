"""Rows of launches that become one launch of a CUDA graph (spec §14)."""

from dataclasses import replace
from typing import Final

import polars as pl

from nsysflow.analysis.frames.intervals import Axis, Cover
from nsysflow.analysis.frames.statistics import median_ns
from nsysflow.analysis.replay.changes.host_time import with_less_work
from nsysflow.analysis.replay.dependencies.program import Program
from nsysflow.analysis.schema import CAUSE

GRAPH_LAUNCH_NS: Final = 8_000
"""What launching a graph costs the host."""

NODE_GAP_NS: Final = 500
"""Between operations of a graph (five real graphs: spec §5)."""


AROUND_LAUNCH_NS: Final = 25_000
"""What Python does around the launch of a graph that is a whole phase, e.g. it looks whether a
capture is on: 9 to 37 us a step in four samples (steps 2 to 4 of trainstep, launch_bound,
trainforward and rolloutcopy, 2026-11-20)."""


def with_graphs(program: Program, instance_of_op: pl.Series, whole: Cover, axis: Axis) -> Program:
    """`program` with every row of launches in an instance of a phase as one graph.

    A row ends at a wait, and where another instance begins. The host's time between its launches
    is gone, as are their own costs; in `whole` instances all but a little of its time is.

    Args:
        program: what to change.
        instance_of_op: for each operation the instance (a number) that it was launched in, or null.
        whole: when instances are open that one graph can stand for, on the thread axis.
        axis: of threads.
    """
    row = _rows(program, instance_of_op)
    calls, first = _launched_once(program.calls, row)
    row_of_op = row.gather(program.ops["node"])
    graphed = replace(
        program,
        calls=calls,
        ops=_following(program.ops, row_of_op, first),
        edges=_closer(program.edges, row_of_op),
    )
    kept = pl.repeat(0, len(calls), dtype=pl.Int64, eager=True)
    kept = kept.scatter(_first_launches(program, instance_of_op), AROUND_LAUNCH_NS)
    return with_less_work(graphed, whole, axis, factor=0, kept_ns=kept)


def _launches(program: Program, instance_of_op: pl.Series) -> pl.DataFrame:
    """Each launch (`node`) with the instance that it is in."""
    instances = pl.DataFrame({"node": program.ops["node"], "instance": instance_of_op})
    return instances.drop_nulls("node").unique("node", keep="first")


def _first_launches(program: Program, instance_of_op: pl.Series) -> pl.Series:
    """The first launch of each instance."""
    launches = _launches(program, instance_of_op).drop_nulls("instance")
    begun = program.calls["start_ns"].gather(launches["node"])
    in_order = launches.with_columns(begun).sort("start_ns", "node")
    return in_order.unique("instance", keep="first")["node"]


def _rows(program: Program, instance_of_op: pl.Series) -> pl.Series:
    """Per call the number of the row of launches that it is in, null outside; calls that wait for
    nothing between two launches of a row are in it too."""
    launches = _launches(program, instance_of_op)
    waits = pl.col("after").is_not_null() & (pl.col("class") != "launch")
    line = (
        program.calls.select("node", "team", "start_ns", "class", waits.alias("waits"))
        .join(launches.with_columns(launches=True), on="node", how="left")
        .sort("team", "start_ns", "node")
    )
    stands = pl.col("launches").fill_null(value=False) | pl.col("waits")
    inside = pl.when(~pl.col("waits")).then("instance")
    marks = line.filter(stands).select("node", "team", inside.alias("instance"))
    changes = (pl.struct("team", "instance") != pl.struct("team", "instance").shift(1)).fill_null(
        value=True
    )
    marks = marks.with_columns(
        pl.when(pl.col("instance").is_not_null()).then(changes.cum_sum()).alias("row")
    )
    marks = marks.with_columns(
        pl.when(pl.len().over("row") > 1).then("row").alias("row"), marked=True
    )
    line = line.join(marks.select("node", "row", "marked"), on="node", how="left")
    # -1 keeps what lies between two rows from joining them
    known = pl.when("marked").then(pl.col("row").cast(pl.Int64).fill_null(-1))
    before, behind = known.forward_fill(), known.backward_fill()
    line = line.select(
        "node", pl.when((before == behind) & (before >= 0)).then(before).alias("row")
    )
    return line.sort("node")["row"]


def _launched_once(calls: pl.DataFrame, row: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
    """`calls` with one call per row that costs anything; and per call the first of its row."""
    order = calls.select("node", "start_ns", row.alias("row")).drop_nulls("row")
    order = order.sort("start_ns", "node")
    first = order.select("node", pl.col("node").first().over("row").alias("first"))
    firsts = pl.repeat(None, len(calls), dtype=pl.UInt32, eager=True)
    firsts = firsts.scatter(first["node"], first["first"])
    leads = (firsts == calls["node"]).fill_null(value=False)
    follows = pl.lit(firsts.is_not_null() & ~leads)
    inside = pl.lit(firsts.is_not_null())
    cost = pl.when(pl.lit(leads)).then(GRAPH_LAUNCH_NS).when(follows).then(0).otherwise("cost_ns")
    return calls.with_columns(
        cost.alias("cost_ns"),
        pl.when(follows).then(pl.lit("api", CAUSE)).otherwise("class").alias("class"),
        pl.when(follows).then(0).otherwise("work_ns").alias("work_ns"),
        *(pl.when(~inside).then(name).alias(name) for name in ("after", "after_ns")),
    ), firsts


def _following(ops: pl.DataFrame, row: pl.Series, first: pl.Series) -> pl.DataFrame:
    """`ops` launched by the first call of their row, at a graph's distance from each other."""
    launcher = first.gather(ops["node"])
    graphed = pl.lit(launcher.is_not_null())
    leads = pl.lit((launcher == ops["node"]).fill_null(value=False))
    same = pl.lit((row == row.gather(ops["prev"])).fill_null(value=False))
    usual = pl.lit(ops.filter(leads).select(median_ns(pl.col("lag_ns"))).item(), pl.Int64)
    return ops.with_columns(
        pl.when(graphed).then(pl.lit(launcher)).otherwise("node").alias("node"),
        pl.when(graphed & ~leads)
        .then(pl.min_horizontal("lag_ns", usual))
        .otherwise("lag_ns")
        .alias("lag_ns"),
        pl.when(same).then(NODE_GAP_NS).otherwise("gap_ns").alias("gap_ns"),
    )


def _closer(edges: pl.DataFrame, row: pl.Series) -> pl.DataFrame:
    """`edges` with those inside a graph at its distance."""
    same = (row.gather(edges["op"]) == row.gather(edges["source"])).fill_null(value=False)
    near = pl.min_horizontal("lag_ns", NODE_GAP_NS)
    return edges.with_columns(pl.when(pl.lit(same)).then(near).otherwise("lag_ns").alias("lag_ns"))
