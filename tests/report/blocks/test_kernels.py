"""Kernels by name, and their classes."""

from typing import Any

import pytest

from nsysflow.report.blocks.kernels import block
from nsysflow.report.fields import Limits
from tests.report.found import stepped
from tests.report.handmade import MS, Results, results, training


def by_class(**total_ms: int) -> tuple[str, ...]:
    """The line on classes with this much kernel time."""
    rows: list[dict[str, Any]] = [
        {"class": name, "total_ns": ms * MS} for name, ms in total_ms.items()
    ]
    return block(results(kernels=rows), Limits(rows=9)).more


def test_a_kernel_is_shown_by_its_short_name() -> None:
    found = block(Results([training()]), Limits(rows=9))
    assert found.rows == (("82 %", "40.0 ms", "600", "66.0 us", "matmul", "gemm"),)
    assert found.caption == "Share of all kernel time on its GPU"


def test_time_and_count_are_those_of_a_step_where_steps_are_judged() -> None:
    found = block(Results([stepped()]), Limits(rows=9))
    assert found.rows[0][:4] == ("82 %", "20.0 ms", "300", "66.0 us")
    assert found.caption.endswith("; per step")


def test_the_most_time_comes_first_and_the_rest_is_counted() -> None:
    rows = [{"short_name": name, "total_ns": ns} for name, ns in (("a", 1), ("b", 3), ("c", 2))]
    found = block(results(kernels=rows), Limits(rows=2))
    assert [row[-1] for row in found.rows] == ["b", "c"]
    assert found.rest == "1 more: --table kernels"


def test_the_bar_shows_the_classes_in_proportion_the_largest_first() -> None:
    assert by_class(norm=5, matmul=15) == ("by class: ███████████████▓▓▓▓▓ matmul 75 %, norm 25 %",)


def test_small_classes_and_kernels_without_one_are_the_last_part() -> None:
    (line,) = by_class(matmul=50, norm=20, softmax=15, copy=5, other=10)
    assert line.endswith("matmul 50 %, norm 20 %, softmax 15 %, other 15 %")
    assert line.count("░") == 3


@pytest.mark.parametrize("total_ms", [{}, {"matmul": 0}])
def test_without_kernel_time_there_is_no_bar(total_ms: dict[str, int]) -> None:
    assert by_class(**total_ms) == ()
