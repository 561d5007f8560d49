"""What the host was running while the GPU waited, on real reports and random traces."""

import polars as pl
import pytest

import nsysflow
from tests.analyses import analysed, any_trace, every_report
from tests.oracle.model import PlainTrace, to_trace

CAUSES = ("host", "launch")


def assert_sums_to_the_gaps(analysis: nsysflow.Analysis) -> None:
    """Each cause at each place has the idle time of the gaps there."""
    stacks = analysis.host_stacks
    if stacks.is_empty():
        return
    key = ["phase", pl.col("cause").cast(pl.String)]
    found = stacks.group_by(key).agg(pl.col("idle_ns").sum()).sort("phase", "cause")
    gaps = analysis.gap_summary.filter(pl.col("cause").is_in(CAUSES))
    placed = gaps.group_by(key).agg(idle_ns=pl.col("total_ns").sum()).sort("phase", "cause")
    assert found.rows() == placed.rows()
    assert stacks["share_pct"].sum() == pytest.approx(100)
    assert analysis.idle_stacks["idle_ns"].sum() == stacks["idle_ns"].sum()


@any_trace
def test_on_random_traces_the_rows_sum_to_the_gaps(model: PlainTrace) -> None:
    assert_sums_to_the_gaps(nsysflow.analyze(to_trace(model)))


@every_report
def test_on_real_reports_the_rows_sum_to_the_gaps(name: str) -> None:
    assert_sums_to_the_gaps(analysed(name))


def test_a_loop_of_known_parts_is_found_within_three_points() -> None:
    """Its host spends 60 % in `tokenize`, 30 % in `collate` and 10 % elsewhere."""
    stacks = (
        analysed("h200-host-split").host_stacks.group_by("function").agg(pl.col("share_pct").sum())
    )
    share = dict(stacks.rows())
    assert share.pop("tokenize") == pytest.approx(60, abs=3)
    assert share.pop("collate") == pytest.approx(30, abs=3)
    assert sum(share.values()) == pytest.approx(10, abs=3)


def test_a_row_names_the_innermost_function_and_the_lines_that_led_to_it() -> None:
    rows = analysed("h200-hf-trainer").host_stacks
    (row,) = rows.filter(function="zero_grad", cause="host", phase="step").to_dicts()
    assert row["source"] == "hf_trainer.py:9 in <module>"
    assert row["via"] == "transformers/trainer.py:1879 in _run_epoch"
    assert row["samples"] == 4


def test_a_stack_is_written_outermost_first_without_the_folders_of_libraries() -> None:
    stacks = analysed("h200-hf-trainer").idle_stacks["stack"]
    (stack,) = stacks.filter(stacks.list.last().str.starts_with("named_modules")).head(1)
    assert stack[:2].to_list() == [
        "<module> (hf_trainer.py:9)",
        "train (transformers/trainer.py:1520)",
    ]
