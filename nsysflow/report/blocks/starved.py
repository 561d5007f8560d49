"""Starved windows: where the GPU waited for launches."""

import polars as pl

from nsysflow.base.units import duration, instant, number
from nsysflow.report.fields import Limits, make_block, more_rows, named_rows, phase_field, value
from nsysflow.report.layout import Block, figure
from nsysflow.report.results import Results


def block(results: Results, limits: Limits) -> Block:
    """The windows, and how long a CUDA graph of the same work would take."""
    table = results.table("starved")
    return make_block(
        "Starved windows",
        named_rows(table, limits),
        (
            (figure("launch idle"), value("launch_idle_ns", duration)),
            (figure("time"), lambda row: duration(row["end_ns"] - row["start_ns"])),
            (figure("as a graph"), value("graph_estimate_ns", duration)),
            (figure("ops"), value("ops", number)),
            (figure("median kernel"), value("median_kernel_ns", duration)),
            (figure("median interval"), value("median_interval_ns", duration)),
            phase_field(),
            (figure("at"), value("start_ns", instant)),
        ),
        caption="Short operations launched one by one; as a graph: an estimate for a CUDA graph",
        rest=more_rows(table.height - limits.rows, "starved"),
    )


def starved_line(results: Results) -> tuple[str, ...]:
    """How long the windows are, and would be as CUDA graphs; nothing where there are none."""
    windows = results.table("starved").select(
        pl.len(),
        (pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns"),
        pl.col("graph_estimate_ns").sum(),
    )
    count, ns, graph_ns = windows.row(0)
    if not count:
        return ()
    plural = "s" if count > 1 else ""
    return (
        f"{number(count)} window{plural} starved of launches: {duration(ns)}, about"
        f" {duration(graph_ns)} as CUDA graph{plural}: --table starved",
    )
