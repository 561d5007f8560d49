"""The clocks of GPUs, and what a lower one cost."""

from typing import Final

import polars as pl

from nsysflow.analysis.tables.clocks import LIMITS, clock_drops, clock_means
from nsysflow.base.units import percent
from nsysflow.report.fields import BlockDeclaration, Limits, Row, Rows, gpu_fields, measure
from nsysflow.report.layout import figure, words
from nsysflow.report.results import RunTables

CLOCK_WORTH_PCT: Final = 95
"""A page shows the clocks if a GPU ran below this share of its highest one, or lost time by it."""


def _clocks(results: RunTables, _: Limits) -> Rows:
    """Each GPU with its clock, and what a lower one costs its steps."""
    clocks = results.table("clocks")
    if clocks.is_empty():
        return Rows(clocks, 0)
    key = ["report", "process", "device"]
    rows = (
        clock_means(clocks)
        .join(clock_drops(clocks).drop("limited_by"), on=key, how="left", nulls_equal=True)
        .filter((pl.col("clock_pct") < CLOCK_WORTH_PCT) | pl.col("lost_pct").is_not_null())
        .sort("lost_ns", *key, descending=[True, False, False, False], nulls_last=True)
    )
    return Rows(rows, len(rows))


def _fall(row: Row) -> str:
    """`1980 → 1530 MHz`; empty without slower steps."""
    if row["lost_pct"] is None:
        return ""
    return f"{row['fast_mhz']:.0f} → {row['slow_mhz']:.0f} MHz"


def _slow_steps(row: Row) -> str:
    """`12 of 30`."""
    return "" if row["lost_pct"] is None else f"{row['slow_steps']} of {row['steps']}"


def _limited(row: Row) -> str:
    """`power cap 92 %`."""
    if row["limited_by"] is None:
        return ""
    return f"{LIMITS[row['limited_by']]} {percent(row['limited_pct'])}"


def _megahertz(mhz: float) -> str:
    return f"{mhz:.0f} MHz"


def _watts(watts: float) -> str:
    return f"{watts:.0f} W"


def _celsius(celsius: float) -> str:
    return f"{celsius:.0f} °C"


CLOCKS: Final = BlockDeclaration(
    table="clocks",
    title="Clocks",
    caption="Means; of highest: of the GPU's highest clock; lost: of the slow steps' compute",
    rows=_clocks,
    fields=(
        gpu_fields,
        measure("SM clock", "sm_clock_mhz", _megahertz),
        measure("of highest", "clock_pct", percent),
        measure("power", "power_w", _watts),
        measure("temperature", "temperature_c", _celsius),
        (words("kept down by"), _limited),
        (words("falls"), _fall),
        (figure("in steps"), _slow_steps),
        measure("lost", "lost_pct", percent),
    ),
    hides_empty=True,
)
