"""The ledger: all recorded time, part by part."""

from typing import Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.findings.finding import line
from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.base.units import duration, number, whole_percent
from nsysflow.report.fields import Limits, Row, gpu_fields, make_block, more_rows, named_rows, value
from nsysflow.report.layout import Block, Column, figure, words
from nsysflow.report.ledger import part_name
from nsysflow.report.results import Results

_WITH_PLACE: Final = ("recurring", "longer", "between")
"""The parts whose largest idle time is somewhere that people want to know."""


def block(results: Results, limits: Limits) -> Block:
    """The parts of the recorded time; none where all but start-up and end are typical steps."""
    table = results.table("run")
    worth = pl.col("part").cast(pl.String).is_in(["recurring", "longer", "loop", "between"])
    if table.filter(worth).is_empty():
        table = table.clear()
    return make_block(
        "Run",
        named_rows(table, limits),
        (
            *gpu_fields(results, table),
            (Column(head=""), part_name),
            (figure("time"), value("time_ns", duration)),
            (figure("steps"), value("count", number)),
            (figure("over a typical step"), value("excess_ns", duration)),
            (figure("GPU busy"), lambda row: whole_percent(row["busy_ns"], row["time_ns"])),
            (words("waits mostly for"), _mostly),
        ),
        caption="All recorded time",
        rest=more_rows(table.height - limits.rows, "run"),
    )


def _mostly(row: Row) -> str:
    """What takes most of the idle time there: `host code 968 ms in save, checkpoint_each.py:10`."""
    if not row["cause_ns"]:
        return ""
    mostly = f"{CAUSES[row['cause']].label} {duration(row['cause_ns'])}"
    if row["part"] not in _WITH_PLACE:
        return mostly
    at = line(row["source"] or "", row["via"] or "")
    return f"{mostly} in {row['phase'] or OUTSIDE}{at and f', {at}'}"
