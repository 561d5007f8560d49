"""Waits of the host, by the idle time behind them."""

from collections.abc import Callable

import polars as pl

from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.report.fields import Limits, Row, filled, left_out, together, value
from nsysflow.report.layout import Block, Column, figure, without_empty_columns, words
from nsysflow.report.results import Results, or_outside
from nsysflow.units import duration, number


def block(results: Results, limits: Limits) -> Block:
    """Waits by call, line and phase: those with the most idle time behind them, and the longest,
    which may have none."""
    grouped = _grouped(results)
    steps = results.step_count
    alone = _alone(results)
    shown = grouped.head(limits.rows)
    longest = grouped.sort("blocked_ns", descending=True, maintain_order=True).head(1)
    if not longest.is_empty() and longest.row(0) not in shown.rows():
        shown = pl.concat([shown.head(limits.rows - 1), longest])

    def per(column: str, shown_as: Callable[[int], str]) -> Callable[[Row], str]:
        return lambda row: shown_as(round(row[column] / steps))

    waits = filled(
        "Waits",
        shown.iter_rows(named=True),
        (
            (figure("idle behind it"), per("induced_idle_ns", duration)),
            (figure("alone"), lambda row: duration(alone.get((row["phase"], row["source"])))),
            (figure("blocked"), per("blocked_ns", duration)),
            (figure("GPU busy"), per("gpu_busy_ns", duration)),
            (figure("calls"), per("calls", number)),
            (words("call"), value("api")),
            (Column(head="line"), value("source")),
            (words("phase"), value("phase")),
        ),
        caption=f"Alone: what a step saves without this wait{results.per_step}{together(results)}",
        more=left_out(len(grouped) - len(shown), "syncs"),
    )
    return without_empty_columns(waits)


def _alone(results: Results) -> dict[tuple[str, str], int]:
    """What the findings that are waits save, by phase and line."""
    found = (one for one in results.found.valued if one.finding.table == "syncs")
    return {(one.finding.phase or OUTSIDE, one.finding.source): one.high_ns for one in found}


def _grouped(results: Results) -> pl.DataFrame:
    key = (pl.col("api").cast(pl.String), or_outside("phase"), pl.col("source").fill_null(""))
    times = pl.col("induced_idle_ns", "blocked_ns", "gpu_busy_ns").sum()
    waits = results.table("syncs").group_by(*key).agg(pl.len().alias("calls"), times)
    return waits.sort(
        *("induced_idle_ns", "blocked_ns", "api", "phase", "source"),
        descending=[True, True, False, False, False],
    )
