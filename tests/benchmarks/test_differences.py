from math import e
from pathlib import Path

import polars as pl
import pytest

from benchmarks.apart import apart
from benchmarks.gap_report_stability import changes, noise, program_of, share_pct, shifted_pct
from benchmarks.page import WALK, Figure
from nsysflow.report.gap_report import Place


def rows(*cases: tuple[str, str, str]) -> pl.DataFrame:
    """Rows as strings, as a CSV reader gives them: kernel, device and graph medians."""
    columns = ["kernel", "device_median_ns", "graph_warm_median_ns"]
    same = ("gpu", "shape", "dtype", "direction", "variant")
    return pl.DataFrame(cases, schema=columns, orient="row").with_columns(
        *(pl.lit("same").alias(name) for name in same), bytes=pl.lit("1")
    )


def test_the_largest_difference_comes_first_as_a_share_of_the_smaller_value() -> None:
    first = rows(("prio", "1000.0", "500.0"), ("muon", "80.0", "70.0"))
    second = rows(("prio", "990.0", "500.0"), ("muon", "80.0", "77.0"))
    found = apart(first, second)
    assert found["apart_pct"].to_list() == pytest.approx([10.0, 100 / 99, 0.0, 0.0])
    assert found.row(0, named=True)["timing"] == "graph_warm"


def test_a_case_of_one_run_only_or_without_a_median_is_left_out() -> None:
    first = rows(("prio", "1000.0", ""), ("muon", "80.0", "70.0"))
    second = rows(("prio", "1000.0", "500.0"))
    assert apart(first, second).select("kernel", "timing").rows() == [("prio", "device")]


def test_the_later_of_two_rows_of_a_case_counts() -> None:
    first = rows(("prio", "9.0", "9.0"), ("prio", "5.0", "5.0"))
    assert apart(first, rows(("prio", "5.0", "5.0")))["apart_pct"].to_list() == [0.0, 0.0]


BASE = frozenset({"loss,waiting,step (a.py),20", "forward,launching,,5", "(all smaller ones),,,1"})
NEW = frozenset({"forward,launching,,10", "(all smaller ones),,,1"})


def test_the_lines_of_both_gap_reports_count() -> None:
    assert share_pct(BASE, BASE) == share_pct(frozenset(), frozenset()) == 0
    assert share_pct(BASE, NEW) == 100 * 3 / 5
    assert changes(BASE, NEW) == {"loss,waiting,step (a.py)": -20, "forward,launching": 5}


def test_captures_of_one_program_differ_in_a_number_at_the_end() -> None:
    assert program_of(Path("x/train-base-12.sqlite.xz")) == "train-base"
    assert program_of(Path("train-base.sqlite.xz")) == "train-base"


LOSS, FORWARD = Place("loss", "waiting"), Place("forward", "launching")


def test_the_noise_is_that_of_logs_of_rows_that_all_captures_have() -> None:
    same = [{LOSS: 0.2}, {LOSS: 0.2}]
    assert (noise(same), shifted_pct(same)) == (0, 0)
    shares = [{LOSS: 0.1, FORWARD: 0.1}, {LOSS: 0.1 * e, FORWARD: 0.1}, {LOSS: 0.1 * e**2}]
    assert noise(shares) == pytest.approx(1)


def test_one_of_two_rows_that_differs_by_half_a_figure_does_so_on_half_of_the_scales() -> None:
    assert shifted_pct([{LOSS: 0.1}, {LOSS: 0.1 * 10 ** (0.51 / 3)}]) == 100 / 2 / 2


def test_the_walk_over_a_page_ends_where_it_began_and_a_figure_is_its_median_and_worst() -> None:
    assert WALK.count("in") == WALK.count("out")
    assert WALK.count("ArrowLeft") == WALK.count("ArrowRight")
    row = Figure("zoom step", [16.7, 300.0, 12.0], "ms").row()
    assert row == {"what": "zoom step", "median": "16.7", "worst": "300", "unit": "ms"}
