"""Ranks of which a part of the step is far from the other ranks'."""

from typing import Final

from nsysflow.analysis.causes import CAUSES
from nsysflow.base.units import duration, signed
from nsysflow.report.fields import Limits, Row, make_block, more_rows, named_rows, value
from nsysflow.report.layout import Block, Column, figure, words
from nsysflow.report.ranks import rank_namer
from nsysflow.report.results import Results

PARTS: Final = {
    "step": "step",
    "compute": "compute",
    "comm_exposed": "exposed communication",
    "copy_exposed": "exposed copies",
    "idle": "idle",
    **{name: f"idle: {cause.label}" for name, cause in CAUSES.items()},
}
"""What each part of a step is called."""


def block(results: Results, limits: Limits) -> Block:
    """The outliers of many ranks, the largest difference first."""
    table = results.table("rank_outliers")
    if not results.many:
        table = table.clear()
    name = rank_namer(results)
    return make_block(
        "Outliers",
        named_rows(table, limits),
        (
            (Column(head="rank"), lambda row: name(row["report"], row["device"])),
            (words("part"), lambda row: PARTS[row["part"]]),
            (figure("time"), value("ns", duration)),
            (figure("median rank"), value("median_ns", duration)),
            (figure("differs by"), _difference),
        ),
        caption=f"Ranks that are far from the others{results.per_step}",
        rest=more_rows(table.height - limits.rows, "rank_outliers"),
    )


def _difference(row: Row) -> str:
    return signed(row["ns"] - row["median_ns"])
