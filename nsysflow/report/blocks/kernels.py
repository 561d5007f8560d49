"""Kernels by name."""

import polars as pl

from nsysflow.analysis.tables.kernels.classes import OTHER
from nsysflow.report.fields import Limits, filled, left_out, named_rows, value
from nsysflow.report.layout import Block, figure, words
from nsysflow.report.results import Results
from nsysflow.units import duration, number, percent, share


def block(results: Results, limits: Limits) -> Block:
    """The kernels with the most time."""
    table = results.table("kernels").sort("total_ns", descending=True, maintain_order=True)
    without_class = table.filter(pl.col("class") == OTHER)
    unclassified = share(int(without_class["total_ns"].sum()), int(table["total_ns"].sum()))
    return filled(
        "Kernels",
        named_rows(table, limits),
        (
            (figure("total"), value("total_ns", duration)),
            (figure("share"), value("share_pct", percent)),
            (figure("count"), value("count", number)),
            (figure("median"), value("median_ns", duration)),
            (words("class"), value("class")),
            (words("grid x block"), lambda row: f"{row['grid'] or ''} x {row['block'] or ''}"),
            (words("kernel"), value("short_name")),
        ),
        caption=f"Share of all kernel time on its GPU; {unclassified} of it has no class",
        more=left_out(table.height - limits.rows, "kernels"),
    )
