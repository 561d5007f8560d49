"""Kernels summed by name."""

import pytest

from tests.tiny import Row, analysis_of, kernel, launch


def test_kernels_of_one_name_are_one_row_and_the_longest_sum_comes_first() -> None:
    rows = [kernel(0, 10, None), kernel(20, 30, None), kernel(40, 70, None, name="big")]
    found = analysis_of(*rows).kernels
    assert found.select("name", "count", "total_ns").rows() == [("big", 1, 30), ("k", 2, 20)]
    assert found["share_pct"].to_list() == [60.0, 40.0]


def test_a_kernel_shorter_than_its_launch_call_is_tiny() -> None:
    rows: list[Row] = [launch(0, 10, 1), kernel(20, 29, 1), launch(30, 40, 2), kernel(50, 60, 2)]
    (row,) = analysis_of(*rows).kernels.to_dicts()
    assert row["tiny_pct"] == pytest.approx(50.0)
