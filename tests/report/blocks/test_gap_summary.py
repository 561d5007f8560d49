"""Idle time by place and cause."""

from nsysflow.report.blocks.gap_summary import block
from nsysflow.report.fields import Limits
from nsysflow.report.layout import Block
from nsysflow.report.results import sorted_by_rank
from tests.analyses import analysed
from tests.report.handmade import MS, Results, device, part, renamed, results, training

TRAINING = Results([training()])


def summary(of: Results, rows: int = 7) -> Block:
    return block(of, Limits(rows=rows))


def column(of: Block, head: str) -> list[str]:
    at = [each.head for each in of.columns].index(head)
    return [row[at] for row in of.rows]


def test_the_largest_comes_first() -> None:
    assert column(summary(TRAINING), "idle") == ["30.0 ms", "12.0 ms", "8.00 ms"]
    assert column(summary(TRAINING), "per step") == ["15.0 ms", "6.00 ms", "4.00 ms"]


def test_a_cause_is_shown_in_words() -> None:
    causes = column(summary(TRAINING), "cause")
    assert causes == ["host code", "launch overhead", "waiting in a sync"]


def test_a_place_outside_all_ranges_is_spelled_out() -> None:
    phases = column(summary(TRAINING), "phase")
    assert phases == ["(outside ranges)", "step/forward", "step/loss"]


def test_host_code_is_before_the_line_of_the_launch_after_it() -> None:
    row = part("host", MS, phase="step", source="a.py:2 in f")
    run = results(accounting=[device(9 * MS, host_ns=MS)], gap_summary=[row])
    assert column(summary(run), "line") == ["before a.py:2"]


def test_the_gpu_is_named_where_the_rows_are_of_several() -> None:
    both = Results([training(), renamed(training(), "b.sqlite")])
    assert {*column(summary(both), "GPU")} == {"run.sqlite GPU 0", "b.sqlite GPU 0"}
    assert "GPU" not in [each.head for each in summary(TRAINING).columns]


def test_the_rows_left_out_are_the_next_of_the_table_that_the_block_names() -> None:
    run = Results([analysed("h200-train")])
    table = sorted_by_rank(run.table("gap_summary"), "gap_summary")
    few, more = summary(run, rows=3), summary(run, rows=5)
    assert few.rows == more.rows[:3]
    assert few.rest == f"{table.height - 3} more: --table gap_summary"
    assert column(more, "gaps") == [f"{count:,}" for count in table["gaps"].head(5)]
