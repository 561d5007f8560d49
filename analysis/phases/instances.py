"""When each instance of each phase ran, on each device (spec §7, §10)."""

import polars as pl

from nsysflow.analysis.frames.intervals import Cover, merge
from nsysflow.analysis.frames.lookup import greatest
from nsysflow.analysis.phases.attribution import Attribution


def instance_spans(attribution: Attribution, ops: pl.DataFrame) -> pl.DataFrame:
    """From the first operation of each instance to the end of its last one, on each device.

    Returns:
        `process`, `path`, `range`, `device_no`, `start_ns`, `end_ns`, including what is nested.

    Args:
        attribution: nodes and paths.
        ops: operations with `node`.
    """
    nodes = attribution.nodes.select("node", "parent", "range", "process", "path", "depth")
    spans = (
        ops.drop_nulls("node")
        .group_by("node", "device_no")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .join(nodes, on="node")
    )
    inner, levels = spans.clear(), [spans.clear()]
    for depth in range(greatest(nodes["depth"]), 0, -1):
        here = pl.concat([spans.filter(pl.col("depth") == depth), inner])
        levels.append(here)
        outer = here.select("device_no", "start_ns", "end_ns", pl.col("parent").alias("node"))
        inner = outer.drop_nulls("node").join(nodes, on="node").select(spans.columns)
    return _hulls(pl.concat(levels), ["process", "path", "range", "device_no"])


def span_inside(attribution: Attribution, ops: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """How much of the spans of each path's instances lies in a window of any device.

    Returns:
        `process`, `path`, `span_ns`.

    Args:
        attribution: nodes and paths.
        ops: all operations, with `node`.
        windows: `windows.WINDOWS`.
    """
    spans = _hulls(instance_spans(attribution, ops), ["process", "path", "range"])
    time = windows.select(pl.col("start_ns").alias("start"), pl.col("end_ns").alias("end"))
    inside_ns = Cover(merge(time)).between(spans["start_ns"], spans["end_ns"])
    return (
        spans.with_columns(inside_ns.alias("span_ns"))
        .group_by("process", "path")
        .agg(pl.col("span_ns").sum())
    )


def _hulls(spans: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    return spans.group_by(key).agg(pl.col("start_ns").min(), pl.col("end_ns").max())
