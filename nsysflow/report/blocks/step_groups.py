"""What is beside the judged steps: start-up, one-offs, and what comes back every k steps."""

from typing import Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.findings.finding import line
from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.base.units import duration
from nsysflow.report.fields import Limits, Row, gpu_fields, make_block, more_rows, named_rows, value
from nsysflow.report.layout import Block, Column, figure, words
from nsysflow.report.results import Results

_NAMES: Final = {
    "before": "start-up",
    "one-off": "one-off",
    "incomplete": "incomplete",
    "cut-off": "cut off",
    "after": "after the steps",
}
"""What rows are called; `periodic` is called after its distance."""


def block(results: Results, limits: Limits) -> Block:
    """The parts of the window that are no judged steps, the longest first."""
    table = results.table("step_groups").filter(pl.col("kind") != "steady", pl.col("total_ns") > 0)
    ranked = table.sort("total_ns", descending=True, maintain_order=True)
    return make_block(
        "Start-up and one-offs",
        named_rows(ranked, limits),
        (
            *gpu_fields(results, table),
            (Column(head=""), _name),
            (figure("time"), value("total_ns", duration)),
            (words("steps"), value("steps")),
            (figure("longer by"), value("excess_ns", duration)),
            (words("mostly"), _mostly),
        ),
        caption="Not part of the figures above",
        rest=more_rows(table.height - limits.rows, "step_groups"),
    )


def _name(row: Row) -> str:
    return f"every {_ordinal(row['every'])}" if row["every"] else _NAMES[row["kind"]]


def _ordinal(number: int) -> str:
    """`2nd`, `10th`."""
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _mostly(row: Row) -> str:
    """What takes most of the idle time there. Of one-offs their longest gap: `host code 71.4 ms in
    train_step/to_device`; of start-up two causes: `host code 3.85 s, loading GPU code 259 ms`."""
    if row["excess_ns"] is None:
        pairs = [(row["cause"], row["cause_ns"]), (row["second_cause"], row["second_cause_ns"])]
        return ", ".join(f"{CAUSES[each].label} {duration(ns)}" for each, ns in pairs if ns)
    if not row["largest_ns"]:
        return ""
    at = line(row["source"] or "", row["via"] or "")
    label = CAUSES[row["largest_cause"]].label
    return f"{label} {duration(row['largest_ns'])} in {row['phase'] or OUTSIDE}{at and f', {at}'}"
