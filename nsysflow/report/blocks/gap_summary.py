"""All idle time by place, cause, culprit and line."""

from nsysflow.analysis.causes import CAUSES
from nsysflow.base.units import duration, number, percent
from nsysflow.report.blocks.starved import starved_line
from nsysflow.report.fields import (
    Limits,
    gpu_fields,
    line_field,
    make_block,
    more_rows,
    named_rows,
    phase_field,
    value,
)
from nsysflow.report.layout import Block, Column, figure, without_empty_columns, words
from nsysflow.report.results import Results, sorted_by_rank


def block(results: Results, limits: Limits) -> Block:
    """The idle time, largest first, with what it is and where."""
    table = sorted_by_rank(results.table("gap_summary"), "gap_summary")
    summary = make_block(
        "Idle time",
        named_rows(table, limits),
        (
            (figure("idle"), value("total_ns", duration)),
            (figure("share"), value("window_pct", percent)),
            (figure("per step"), value("per_step_ns", duration)),
            (figure("gaps"), value("gaps", number)),
            *gpu_fields(results, table),
            (Column(head="cause"), lambda row: CAUSES[row["cause"]].label),
            phase_field(),
            (words("culprit"), value("culprit")),
            line_field(),
        ),
        caption="By cause, and by the phase in which the host was meanwhile",
        more=starved_line(results),
        rest=more_rows(table.height - limits.rows, "gap_summary"),
    )
    return without_empty_columns(summary)
