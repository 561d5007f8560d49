"""Waits of the host, by the idle time behind them."""

import polars as pl

from nsysflow.report.fields import Limits, filled, left_out, together, value
from nsysflow.report.layout import Block, Column, figure, without_empty_columns, words
from nsysflow.report.results import Results, or_outside
from nsysflow.units import duration, number


def block(results: Results, limits: Limits) -> Block:
    """Waits by call, line and phase: those with the most idle time behind them, and the longest,
    which may have none."""
    grouped = _grouped(results)
    shown = grouped.head(limits.rows)
    longest = grouped.sort("blocked_ns", descending=True, maintain_order=True).head(1)
    if not longest.is_empty() and longest.row(0) not in shown.rows():
        shown = pl.concat([shown.head(limits.rows - 1), longest])
    waits = filled(
        "Waits",
        shown.iter_rows(named=True),
        (
            (figure("idle behind it"), value("induced_idle_ns", duration)),
            (figure("blocked"), value("blocked_ns", duration)),
            (figure("GPU busy"), value("gpu_busy_ns", duration)),
            (figure("calls"), value("calls", number)),
            (words("call"), value("api")),
            (Column(head="line"), value("source")),
            (words("phase"), value("phase")),
        ),
        caption=f"What counts is the idle time behind a wait, not its length{together(results)}",
        more=left_out(len(grouped) - len(shown), "syncs"),
    )
    return without_empty_columns(waits)


def _grouped(results: Results) -> pl.DataFrame:
    key = (pl.col("api").cast(pl.String), or_outside("phase"), pl.col("source").fill_null(""))
    times = pl.col("induced_idle_ns", "blocked_ns", "gpu_busy_ns").sum()
    waits = results.table("syncs").group_by(*key).agg(pl.len().alias("calls"), times)
    return waits.sort(
        *("induced_idle_ns", "blocked_ns", "api", "phase", "source"),
        descending=[True, True, False, False, False],
    )
