"""Kernels by name."""

from nsysflow.report.blocks.kernels import block
from nsysflow.report.fields import Limits
from tests.report.handmade import MS, Results, results, training


def test_a_kernel_is_shown_by_its_short_name_with_its_shape() -> None:
    (row,) = block(Results([training()]), Limits(rows=9)).rows
    assert row == ("40.0 ms", "82 %", "600", "66.0 us", "matmul", "64x1x1 x 256x1x1", "gemm")


def test_the_most_time_comes_first_and_what_has_no_class_is_said() -> None:
    rows = [
        {"short_name": "a", "class": "other", "total_ns": 1 * MS},
        {"short_name": "b", "class": "matmul", "total_ns": 3 * MS},
    ]
    found = block(results(kernels=rows), Limits(rows=9))
    assert [row[-1] for row in found.rows] == ["b", "a"]
    assert found.caption.endswith("; 25 % of it has no class")
