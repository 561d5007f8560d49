"""Waits of the host, by the idle time behind them."""

from collections.abc import Callable
from fractions import Fraction
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import line, without_function
from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.base.units import duration
from nsysflow.report.fields import (
    Limits,
    Row,
    gpus_together,
    make_block,
    mean_count,
    more_rows,
    value,
)
from nsysflow.report.layout import Block, Column, figure, without_empty_columns, words
from nsysflow.report.results import RunTables, or_outside

_PLACE: Final = ("api", "phase", "source", "via")

WORTH: Final = 0.005
"""A wait that lasts, or has idle time behind it, for less than this share of the window is not
worth a row: a finding is worth twice as much."""


def block(results: RunTables, limits: Limits) -> Block:
    """Waits by call, line and phase: those with the most idle time behind them, and the longest,
    which may have none."""
    grouped = _grouped(results)
    steps = results.step_count
    alone = _savings_by_place(results)
    shown = _worth_a_row(results, grouped, limits.rows)

    def time(column: str) -> Callable[[Row], str]:
        return lambda row: duration(round(row[column] / steps))

    waits = make_block(
        "Waits",
        shown.iter_rows(named=True),
        (
            (figure("idle behind it"), time("induced_idle_ns")),
            (
                figure("alone"),
                lambda row: duration(alone.get(tuple(row[name] for name in _PLACE))),
            ),
            (figure("blocked"), time("blocked_ns")),
            (figure("GPU busy", spare=True), time("gpu_busy_ns")),
            (figure("calls"), lambda row: _calls(row["calls"], steps)),
            (words("call"), value("api")),
            (Column(head="line"), lambda row: without_function(line(row["source"], row["via"]))),
            (words("phase"), value("phase")),
        ),
        caption="Alone: what a step saves without this wait"
        f"{results.per_step}{gpus_together(results)}",
        rest=more_rows(len(grouped) - len(shown), "syncs"),
    )
    return without_empty_columns(waits)


def _calls(count: int, steps: int) -> str:
    """How many there are per step; of fewer than one, in how many steps one comes: `1 in 10`."""
    some = Fraction(count, steps).limit_denominator(10)
    if count >= steps or not some:
        return mean_count(count, steps)
    return f"{some.numerator} in {some.denominator}"


def _worth_a_row(results: RunTables, grouped: pl.DataFrame, rows: int) -> pl.DataFrame:
    """The waits with the most idle time behind them, and the longest."""
    window_ns = int(results.table("accounting")["window_ns"].sum())
    idle = grouped.filter(pl.col("induced_idle_ns") > WORTH * window_ns)
    shown = idle.head(rows)
    by_time = grouped.sort("blocked_ns", descending=True, maintain_order=True)
    long = (pl.col("calls") >= results.step_count / 2) & (pl.col("blocked_ns") > WORTH * window_ns)
    longest = by_time.filter(long).head(1)
    if not longest.is_empty() and longest.row(0) not in shown.rows():
        shown = pl.concat([shown.head(rows - 1), longest])
    return shown


def _savings_by_place(results: RunTables) -> dict[tuple[str, ...], int]:
    """What the findings that are waits save, by place."""
    found = ((one.finding, one.low_ns or one.high_ns) for one in results.whole.found.valued)
    return {
        (one.culprit, one.phase or OUTSIDE, one.source, one.via): saved_ns
        for one, saved_ns in found
        if one.table == "syncs"
    }


def _grouped(results: RunTables) -> pl.DataFrame:
    lines = pl.col("source", "via").fill_null("")
    key = (pl.col("api").cast(pl.String), or_outside("phase"), lines)
    times = pl.col("induced_idle_ns", "blocked_ns", "gpu_busy_ns").sum()
    waits = results.table("syncs").group_by(*key).agg(pl.len().alias("calls"), times)
    return waits.sort(
        *("induced_idle_ns", "blocked_ns", *_PLACE),
        descending=[True, True, *[False] * len(_PLACE)],
    )
