"""What each phase ran, and its idle time, including nested phases (spec §7.9).

Operations are summed by node (a stack of range instances), nodes are rolled up to their parents
level by level, and nodes of equal path become one row. Idle time joins them by path.
"""

from collections.abc import Mapping
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.events.graphs import GRAPH_NODE_NS
from nsysflow.analysis.frames.columns import greatest, spread
from nsysflow.analysis.frames.intervals import Axis, merge, reached_before
from nsysflow.analysis.phases.attribution import Attribution, PlacedOps
from nsysflow.analysis.schema import ATTRIBUTION

OP_COLUMNS: Final = (
    *("node", "launch_node", "how", "kind", "process", "device_no", "start_ns", "end_ns", "first"),
)
"""The columns of an operation that phases need."""

NODE_SUMS: Final = (
    "ops",
    "kernels",
    "kernel_ns",
    "op_ns",
    "alone_ns",
    "launches",
    "own_ops",
    "borrowed_ops",
    "process_range_ops",
    "captured_ops",
    "host_wall_ns",
)
"""The columns that add up from a stack to the one around it."""

COUNTED: Final = (
    *NODE_SUMS,
    *("exclusive_kernel_ns", "instances", "span_ns", "busy_ns", "graph_estimate_ns"),
)
"""The columns that are 0 for a path without operations."""


_PATH: Final = {"process": pl.Int64(), "path": pl.UInt32()}

WORK: Final = pl.Schema(
    {
        **_PATH,
        **dict.fromkeys((*NODE_SUMS, "exclusive_kernel_ns", "instances", "span_ns"), pl.Int64()),
        **{f"{name}_ns": pl.Int64() for name in ("mean", "median", "min", "max", "std", "p95")},
        "union_ns": pl.Int64(),
        "depth": pl.Int64(),
        "joined": pl.String(),
        "key": pl.String(),
        "busy_ns": pl.Int64(),
        "graph_estimate_ns": pl.Int64(),
    }
)
"""What each path of each process did: the columns of PHASES except idle time."""
Work = Annotated[pl.DataFrame, WORK]

PATH_BUSY: Final = pl.Schema({**_PATH, "busy_ns": pl.Int64()})
"""The union of each path's operations per device, summed."""
PathBusy = Annotated[pl.DataFrame, PATH_BUSY]

PATH_COMPUTE: Final = pl.Schema({**_PATH, "compute_ns": pl.Int64()})
"""How long each path computes: the union per device, summed."""
PathCompute = Annotated[pl.DataFrame, PATH_COMPUTE]

PATH_IDLE: Final = pl.Schema({**_PATH, **{f"{cause}_ns": pl.Int64() for cause in CAUSES}})
"""The idle time of each path by cause, with what is nested in it."""
PathIdle = Annotated[pl.DataFrame, PATH_IDLE]


def phase_work(attribution: Attribution, ops: PlacedOps, host: pl.DataFrame, axis: Axis) -> Work:
    """What each phase did, with what is nested in it.

    Args:
        attribution: nodes and paths.
        ops: operations, in order.
        host: `node`, `host_wall_ns`: how long each node was a thread's current stack.
        axis: the axis of the operations.
    """
    ops = (
        ops.lazy()
        .select(*OP_COLUMNS, _alone().alias("alone"))
        .filter(pl.col("node").is_not_null())
        .collect()
    )
    nodes = _rolled_up(attribution, _by_node(attribution, ops, host))
    key = ["process", "path"]
    spans = nodes.group_by(*key, "range").agg(
        (pl.col("last_ns").max() - pl.col("first_ns").min()).alias("span_ns")
    )
    per_instance = spans.group_by(key).agg(
        pl.len().cast(pl.Int64).alias("instances"),
        pl.col("span_ns").sum(),
        *spread(pl.col("span_ns")),
    )
    sums = nodes.group_by(key).agg(pl.col(*NODE_SUMS, "exclusive_kernel_ns").sum())
    shared = _union_of_paths(attribution, ops.filter(~pl.col("alone")), axis)
    work = (
        sums.join(per_instance, on=key)
        .join(shared, on=key, how="left")
        .join(attribution.paths[["path", "depth", "joined", "key"]], on="path")
    )
    return work.with_columns(
        (pl.col("alone_ns") + pl.col("union_ns").fill_null(0)).alias("busy_ns"),
        (pl.col("op_ns") + GRAPH_NODE_NS * pl.col("ops")).alias("graph_estimate_ns"),
    )


def busy_inside(attribution: Attribution, work: Work, parts: pl.DataFrame, axis: Axis) -> Work:
    """`work` with the busy time of everything that runs in some windows.

    Args:
        attribution: nodes and paths.
        work: of `phase_work`, of the operations that start in the windows.
        parts: the parts of operations in the windows, with `node`.
        axis: the axis of the operations.
    """
    busy = busy_of_paths(attribution, parts, axis)
    busy_there = pl.col("busy_ns").fill_null(0)
    joined = with_columns_of(attribution, work.drop("busy_ns"), busy).with_columns(busy_there)
    return joined.select(WORK.names())


def busy_of_paths(attribution: Attribution, parts: pl.DataFrame, axis: Axis) -> PathBusy:
    """How long each path's parts of operations ran.

    Args:
        attribution: nodes and paths.
        parts: `device_no`, `start_ns`, `end_ns`, `process`, `node`.
        axis: of the devices.
    """
    placed = parts.drop_nulls("node").with_columns(
        axis.at(pl.col("device_no"), pl.col("start_ns")).alias("place")
    )
    if not placed["place"].is_sorted():
        placed = placed.sort("place")
    placed = placed.with_columns(_alone().alias("alone"))
    by_node = placed.filter("alone").group_by("node").agg(_length_ns().sum().alias("ns"))
    process = attribution.nodes["process"][by_node["node"]]
    sums = pl.DataFrame([process, attribution.path_of(by_node["node"]), by_node["ns"]])
    shared = _union_of_paths(attribution, placed.filter(~pl.col("alone")), axis)
    levels = [level[["process", "path", "ns"]] for level in attribution.levels(sums)]
    busy = pl.concat([shared.rename({"union_ns": "ns"}), *levels])
    return busy.group_by("process", "path").agg(pl.col("ns").sum().alias("busy_ns"))


def compute_time(attribution: Attribution, ops: pl.DataFrame, axis: Axis) -> PathCompute:
    """How long each phase computes.

    Args:
        attribution: nodes and paths.
        ops: operations with `node` and `part`, or their parts in some windows.
        axis: the axis of the operations.
    """
    columns = ("device_no", "start_ns", "end_ns", "process", "node")
    computing = ops.lazy().filter(pl.col("part") == "compute", _length_ns() > 0)
    compute = computing.select(columns).collect()
    return busy_of_paths(attribution, compute, axis).rename({"busy_ns": "compute_ns"})


def phase_idle(
    attribution: Attribution, gaps: pl.DataFrame, parts: Mapping[str, pl.DataFrame]
) -> PathIdle:
    """The idle time of each phase by cause.

    Args:
        attribution: nodes and paths.
        gaps: with the `process` of the launch that ended them.
        parts: by cause `row` (of `gaps`), `path` and `ns`.
    """
    key = ["process", "path"]
    causes = [f"{cause}_ns" for cause in CAUSES]
    by_cause = [PATH_IDLE.to_frame()]
    for cause, rows in parts.items():
        if rows.is_empty():
            continue
        placed = pl.DataFrame([rows["path"], rows["ns"], gaps["process"][rows["row"]]])
        sums = placed.group_by(key).agg(pl.col("ns").sum().alias(f"{cause}_ns"))
        by_cause.append(sums.drop_nulls("path"))
    placed = pl.concat(by_cause, how="diagonal").select(*key, pl.col(causes).fill_null(0))
    idle = [level.group_by(key).agg(pl.col(causes).sum()) for level in attribution.levels(placed)]
    return pl.concat([placed.clear(), *idle])


def with_columns_of(
    attribution: Attribution, work: pl.DataFrame, more: pl.DataFrame
) -> pl.DataFrame:
    """`work` with the columns of `more` (by `process` and `path`).

    Paths present only in `more` get zero counts: their operations started outside the windows.
    """
    sums = [name for name in COUNTED if name in work.columns]
    return (
        work.drop("depth", "joined", "key")
        .join(more, on=["process", "path"], how="full", coalesce=True)
        .with_columns(pl.col(sums).fill_null(0))
        .join(attribution.paths[["path", "depth", "joined", "key"]], on="path")
    )


def _length_ns() -> pl.Expr:
    return pl.col("end_ns") - pl.col("start_ns")


def _alone() -> pl.Expr:
    """Whether no other operation overlaps this one on its device, so that busy time adds up."""
    reach = pl.col("place") + _length_ns()
    free_before = (pl.col("place") >= reached_before(reach)).fill_null(value=True)
    free_after = (reach <= pl.col("place").shift(-1)).fill_null(value=True)
    return free_before & free_after


def _by_node(attribution: Attribution, ops: pl.DataFrame, host: pl.DataFrame) -> pl.DataFrame:
    """Every node that was open or launched something, without nested nodes."""
    kernel = pl.col("kind") == "kernel"
    how = [
        (pl.col("how") == name).sum().cast(pl.Int64).alias(f"{name}_ops")
        for name in ATTRIBUTION.categories
    ]
    of_ops = ops.group_by("node").agg(
        pl.len().cast(pl.Int64).alias("ops"),
        kernel.sum().cast(pl.Int64).alias("kernels"),
        _length_ns().filter(kernel).sum().alias("kernel_ns"),
        _length_ns().sum().alias("op_ns"),
        _length_ns().filter("alone").sum().alias("alone_ns"),
        pl.col("start_ns").min().alias("first_ns"),
        pl.col("end_ns").max().alias("last_ns"),
        *how,
    )
    launches = pl.len().cast(pl.Int64).alias("launches")
    of_launches = ops.filter("first").group_by(node="launch_node").agg(launches)
    of_host = host.group_by("node").agg(pl.col("host_wall_ns").sum())
    own = attribution.nodes
    for sums in (of_ops, of_launches, of_host):
        own = own.join(sums, on="node", how="left")
    seen = pl.col("ops").is_not_null() | pl.col("host_wall_ns").is_not_null()
    return (
        own.with_columns(seen.alias("seen"))
        .with_columns(pl.col(NODE_SUMS).fill_null(0))
        .with_columns(pl.col("kernel_ns").alias("exclusive_kernel_ns"))
    )


def _rolled_up(attribution: Attribution, nodes: pl.DataFrame) -> pl.DataFrame:
    """The `nodes` that occur, each with everything nested in it.

    Host time is not passed on to an inherited stack: its thread did not spend that time.
    """
    inner = nodes.clear()
    levels = []
    for depth in range(greatest(nodes["depth"]), 0, -1):
        here = pl.concat([nodes.filter(pl.col("depth") == depth), inner])
        here = here.group_by("node").agg(
            pl.col("parent", "range", "process", "path", "depth").drop_nulls().first(),
            pl.col("seen").any(),
            pl.col(*NODE_SUMS, "exclusive_kernel_ns").sum(),
            pl.col("first_ns").min(),
            pl.col("last_ns").max(),
        )
        levels.append(here)
        grafted = pl.col("node").is_in(attribution.grafted.implode())
        inner = (
            here.filter(pl.col("parent").is_not_null())
            .with_columns(
                pl.when(grafted).then(0).otherwise("host_wall_ns").alias("host_wall_ns"),
                pl.col("parent").alias("node"),
                pl.lit(None, pl.UInt32).alias("parent"),
                pl.lit(0, pl.Int64).alias("exclusive_kernel_ns"),
                *(
                    pl.lit(None, nodes.schema[c]).alias(c)
                    for c in ("range", "process", "path", "depth")
                ),
            )
            .select(nodes.columns)
        )
    return pl.concat(levels).filter("seen") if levels else nodes


def _union_of_paths(attribution: Attribution, ops: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    """Per process and path `union_ns`: the union of its operations on each device, summed."""
    empty = pl.DataFrame(schema={"process": pl.Int64, "path": pl.UInt32, "union_ns": pl.Int64})
    if ops.is_empty():
        return empty
    rows = ops[["process", "device_no", "start_ns", "end_ns"]].with_columns(
        attribution.path_of(ops["node"])
    )
    return pl.concat([empty, *(_union_ns(level, axis) for level in attribution.levels(rows))])


def _union_ns(ops: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    """`union_ns`, the union of `ops` per device, summed per process and path."""
    key = ["process", "path", "device_no"]
    tracks = ops.select(key).unique().with_row_index("track")
    placed = ops.join(tracks, on=key).select(
        axis.at(pl.col("track"), pl.col("start_ns")).alias("start"),
        axis.at(pl.col("track"), pl.col("end_ns")).alias("end"),
    )
    track = axis.track(pl.col("start")).cast(pl.UInt32).alias("track")
    busy = merge(placed).select(track, (pl.col("end") - pl.col("start")).alias("union_ns"))
    return busy.join(tracks, on="track").group_by("process", "path").agg(pl.col("union_ns").sum())
