"""All idle time by place, cause, culprit and line."""

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.base.units import duration, number, percent
from nsysflow.report.blocks.starved import starved_line
from nsysflow.report.fields import (
    Limits,
    filled,
    gpu_fields,
    left_out,
    line_field,
    named_rows,
    phase_field,
    value,
)
from nsysflow.report.layout import Block, Column, figure, without_empty_columns, words
from nsysflow.report.results import Results, ranked


def block(results: Results, limits: Limits) -> Block:
    """The idle time, largest first, with what it is and where."""
    table = ranked(results.table("gap_summary"), "gap_summary")
    summary = filled(
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
        rest=left_out(table.height - limits.rows, "gap_summary"),
    )
    return without_empty_columns(summary)
