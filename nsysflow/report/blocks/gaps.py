"""The longest gaps."""

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.base.units import duration, instant
from nsysflow.report.fields import (
    Limits,
    Row,
    gpu_field,
    line_field,
    make_block,
    more_rows,
    phase_field,
    value,
)
from nsysflow.report.layout import Block, Column, figure, without_empty_columns, words
from nsysflow.report.results import Results


def block(results: Results, limits: Limits) -> Block:
    """The longest gaps, with what was before and after them."""
    longest = results.longest_gaps(limits.rows, limits.at_least_ns)
    several = results.table("accounting").height > 1
    gaps = make_block(
        "Longest gaps",
        longest.iter_rows(named=True),
        (
            (figure("idle"), value("duration_ns", duration)),
            (figure("at"), value("start_ns", instant)),
            *((gpu_field(results),) if several else ()),
            (Column(head="cause"), lambda row: CAUSES[row["cause"]].label),
            phase_field(),
            (words("culprit"), value("culprit")),
            line_field(),
            (words("before", spare=True), value("prev_op")),
            (words("after", spare=True), value("next_op")),
            (words("waiting phase", spare=True), _waiting_phase),
        ),
        rest=more_rows(results.count_gaps(limits.at_least_ns) - len(longest), "gaps"),
    )
    return without_empty_columns(gaps)


def _waiting_phase(row: Row) -> str:
    """The phase that had to wait, unless the host was in it."""
    waiting = row["waiting_phase"]
    return "" if waiting == row["phase"] else waiting or OUTSIDE
