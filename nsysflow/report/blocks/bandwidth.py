"""How fast NCCL moved its bytes, by kind of group, operation and size."""

from collections.abc import Callable

import polars as pl

from nsysflow.base.units import duration, number, percent, size
from nsysflow.report.fields import Limits, Row, make_block, more_rows, value
from nsysflow.report.layout import Block, figure, without_empty_columns, words
from nsysflow.report.ranks import group_names
from nsysflow.report.results import Results

_ALIKE = ["kind", "operation", "size_bytes"]


def block(results: Results, limits: Limits) -> Block:
    """Slow links, then the group in the middle of those alike; those that move most come first."""
    table = results.table("bandwidth").drop_nulls("bus_bytes_per_s")
    rows = _middle_of_those_alike(table)
    slow = table.filter(pl.col("slow_ns") > 0).sort("slow_ns", descending=True)
    rows = pl.concat([slow, rows.join(slow, on=["group", *_ALIKE], how="anti", nulls_equal=True)])
    groups = group_names(results.table("rank_groups"))
    return without_empty_columns(
        make_block(
            "Bandwidth",
            rows.head(limits.rows).iter_rows(named=True),
            (
                (words("group"), lambda row: groups.get(row["group"], "")),
                (words("operation"), value("operation")),
                (figure("bytes"), value("bytes", size)),
                (figure("count"), value("count", number)),
                (figure("transfer"), value("done_ns", duration)),
                (figure("algorithm"), _speed("algorithm_bytes_per_s")),
                (figure("bus"), _speed("bus_bytes_per_s")),
                (figure("of peak"), value("peak_pct", percent)),
                (figure("overlapped", spare=True), value("overlapped_pct", percent)),
                (figure("slow link costs"), value("slow_ns", duration)),
            ),
            caption="From the last rank's arrival to the end; of similar groups, the middle one",
            rest=more_rows(table.height - min(rows.height, limits.rows), "bandwidth"),
        )
    )


def _middle_of_those_alike(table: pl.DataFrame) -> pl.DataFrame:
    """Of each kind, operation and size the group with the middle time, most time first."""
    place = pl.int_range(pl.len()).over(_ALIKE)
    middle = place == pl.len().over(_ALIKE) // 2
    took_ns = (pl.col("done_ns") * pl.col("count")).sum().over(_ALIKE).alias("took_ns")
    return (
        table.sort("done_ns", "group")
        .with_columns(took_ns)
        .filter(middle)
        .sort("took_ns", descending=True)
        .drop("took_ns")
    )


def _speed(column: str) -> Callable[[Row], str]:
    return value(column, lambda bytes_per_s: f"{size(round(bytes_per_s))}/s")
