"""The longest gaps."""

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.report.fields import Limits, Row, filled, gpu_field, left_out, value
from nsysflow.report.idle_parts import line_at, where_host_was_in_gap
from nsysflow.report.layout import Block, Column, figure, without_empty_columns, words
from nsysflow.report.results import Results
from nsysflow.units import duration, instant


def block(results: Results, limits: Limits) -> Block:
    """The longest gaps, with what was before and after them."""
    longest = results.longest_gaps(limits.rows, limits.at_least_ns)
    several = results.table("accounting").height > 1
    gaps = filled(
        "Longest gaps",
        longest.with_columns(where_host_was_in_gap()).iter_rows(named=True),
        (
            (figure("idle"), value("duration_ns", duration)),
            (figure("at"), value("start_ns", instant)),
            *((gpu_field(results),) if several else ()),
            (Column(head="cause"), lambda row: CAUSES[row["cause"]].label),
            (words("where the host was"), value("where")),
            (words("culprit"), value("culprit")),
            (Column(head="line"), _line),
            (words("before", spare=True), value("prev_op")),
            (words("after", spare=True), value("next_op")),
        ),
        more=left_out(results.count_gaps(limits.at_least_ns) - len(longest), "gaps"),
    )
    return without_empty_columns(gaps)


def _line(row: Row) -> str:
    return line_at(row["cause"], row["culprit"] or "", row["source"] or "")
