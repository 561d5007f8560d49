from math import e

import polars as pl
import pytest

from benchmarks.apart import apart
from benchmarks.gap_report_stability import changes, noise, share_pct, shifted_pct
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


BASE = frozenset({"loss,waiting,step (a.py),20", "forward,launching,,5", "(all smaller ones),,,1"})
NEW = frozenset({"forward,launching,,10", "(all smaller ones),,,1"})


def test_the_lines_of_both_gap_reports_count() -> None:
    assert share_pct(BASE, BASE) == share_pct(frozenset(), frozenset()) == 0
    assert share_pct(BASE, NEW) == 100 * 3 / 5
    assert changes(BASE, NEW) == {"loss,waiting,step (a.py)": -20, "forward,launching": 5}


LOSS, FORWARD = Place("loss", "waiting"), Place("forward", "launching")


def test_the_noise_is_that_of_logs_of_rows_that_all_captures_have() -> None:
    same = [{LOSS: 0.2}, {LOSS: 0.2}]
    assert (noise(same), shifted_pct(same)) == (0, 0)
    shares = [{LOSS: 0.1, FORWARD: 0.1}, {LOSS: 0.1 * e, FORWARD: 0.1}, {LOSS: 0.1 * e**2}]
    assert noise(shares) == pytest.approx(1)
