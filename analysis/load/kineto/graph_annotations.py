"""What a program called the work that it captured into CUDA graphs: `torch.cuda.graph_annotations`
writes it beside the operations of their replays (spec §7.16)."""

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.kineto.document import Args
from nsysflow.analysis.schema import os_pid


def graph_annotations(ops: pl.DataFrame, names: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`schema.GRAPH_NODES` and the `schema.RANGES` in which they were captured.

    The trace does not say when that was. The ranges lie one after the other before the first
    operation, each of 2 ns, and their nodes are made in the middle.

    Args:
        ops: `schema.OPS`.
        names: what the program called each of these, of `captured_as`.
    """
    nodes = (
        ops.select("process", names.alias("name"), node="graph_node")
        .drop_nulls()
        .unique(["process", "node"], keep="first", maintain_order=True)
    )
    if nodes.is_empty():
        return schema.GRAPH_NODES.to_frame(), schema.RANGES.to_frame()
    ranges = nodes.select("process", "name").unique(maintain_order=True).with_row_index("row")
    first_ns = pl.lit(ops["start_ns"].min(), pl.Int64)
    ranges = ranges.with_columns(
        (first_ns - 2 * (pl.len() - pl.col("row").cast(pl.Int64))).alias("start_ns"),
        (pl.col("process") | os_pid(pl.col("process"))).alias("thread"),  # the main one
    )
    made = nodes.join(ranges, on=["process", "name"], maintain_order="left").select(
        *("process", "thread", "node"),
        start_ns=pl.col("start_ns") + 1,
        original=pl.lit(None, pl.Int64),
    )
    opened = ranges.with_columns(
        end_ns=pl.col("start_ns") + 2,
        kind=pl.lit("push_pop", schema.RANGE_KIND),
        domain=pl.lit(None, pl.String),
    )
    return made.match_to_schema(schema.GRAPH_NODES), opened.match_to_schema(schema.RANGES)


def captured_as(args: Args) -> str | None:
    """What an operation of a graph is called; None without a name."""
    named = args.name if isinstance(args.name, str) else args.text
    return named if isinstance(named, str) and named else None
