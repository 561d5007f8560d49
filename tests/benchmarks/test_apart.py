"""How far two runs of the kernels' benchmark differ."""

import runpy
from collections.abc import Callable

import polars as pl
import pytest

from tests.reports import ROOT

Apart = Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame]


@pytest.fixture(scope="module")
def apart() -> Apart:
    function: Apart = runpy.run_path(str(ROOT / "benchmarks" / "apart.py"))["apart"]
    return function


def rows(*cases: tuple[str, str, str]) -> pl.DataFrame:
    """Rows as strings, as a CSV reader gives them: kernel, device and graph medians."""
    kernels, device, graph = zip(*cases, strict=True)
    same = dict.fromkeys(("gpu", "shape", "dtype", "direction", "variant"), "same")
    medians = {"device_median_ns": device, "graph_warm_median_ns": graph, "bytes": "1"}
    return pl.DataFrame({"kernel": kernels}).with_columns(
        **{name: pl.lit(value) for name, value in same.items()},
        **{
            name: pl.lit(value) if isinstance(value, str) else pl.Series(value)
            for name, value in medians.items()
        },
    )


def test_the_largest_difference_comes_first_as_a_share_of_the_smaller_value(apart: Apart) -> None:
    first = rows(("prio", "1000.0", "500.0"), ("muon", "80.0", "70.0"))
    second = rows(("prio", "990.0", "500.0"), ("muon", "80.0", "77.0"))
    found = apart(first, second)
    assert found["apart_pct"].to_list() == pytest.approx([10.0, 100 / 99, 0.0, 0.0])
    assert found.row(0, named=True)["timing"] == "graph_warm"


def test_a_case_of_one_run_only_or_without_a_median_is_left_out(apart: Apart) -> None:
    first = rows(("prio", "1000.0", ""), ("muon", "80.0", "70.0"))
    second = rows(("prio", "1000.0", "500.0"))
    assert apart(first, second).select("kernel", "timing").rows() == [("prio", "device")]


def test_the_later_of_two_rows_of_a_case_counts(apart: Apart) -> None:
    first = rows(("prio", "9.0", "9.0"), ("prio", "5.0", "5.0"))
    assert apart(first, rows(("prio", "5.0", "5.0")))["apart_pct"].to_list() == [0.0, 0.0]
