"""Operations of graphs with a wrong time (spec §12.1, the last two counts)."""

from dataclasses import dataclass
from typing import Final, Self

import polars as pl

from nsysflow.analysis.frames.intervals import reached_before
from nsysflow.analysis.timeline.streams import stream_numbers

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
    def of(cls, ops: pl.DataFrame) -> Self:
        """Those of `ops`, of `events.in_order`."""
        none = ops["op"].clear()
        if not ops["graph_node"].count():
            return cls(into_others=none, long=none)
        return cls(into_others=_into_other_launches(ops), long=_long_kernels(ops))

    @property
    def rows(self) -> pl.Series:
        """All of them."""
        return pl.concat([self.into_others, self.long]).unique()


def _into_other_launches(ops: pl.DataFrame) -> pl.Series:
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


def _on_streams_of_graphs(ops: pl.DataFrame) -> pl.DataFrame:
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


def _long_kernels(ops: pl.DataFrame) -> pl.Series:
    """Kernels of a graph that last over 100 times the median of the same node."""
    kernels = ops.select("op", "kind", "process", "graph_node", "name", "start_ns", "end_ns")
    kernels = kernels.filter(pl.col("kind") == "kernel", pl.col("graph_node").is_not_null())
    lasts = pl.col("end_ns") - pl.col("start_ns")
    median = lasts.median().over("process", "graph_node", "name")
    return kernels.filter(lasts > LONG_GRAPH_KERNEL * median)["op"]
