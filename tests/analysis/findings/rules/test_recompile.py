"""A step that compiles again."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest

from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.compilation import recompile
from tests import tiny
from tests.analysis.findings.subjects import MS, US, Row, found, judged, launched
from tests.oracle.model import Op, Shape

KERNEL: Final = "k"


def building_in(
    slow: int | None, steps: int = 20, *, built: str = KERNEL, grid: int = 1
) -> JudgedReport:
    """Steps of 2 ms with two kernels each; in one of them code is built and loaded between these,
    which takes 50 ms. Its second kernel has another name or grid."""

    shape = Shape(grid_x=grid)

    def rows() -> Iterator[Row]:
        start = 0
        for i in range(steps):
            late = 50_000 if i == slow else 0
            yield tiny.opened(start, start + (1_990 + late) * US, "step")
            yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=900 * US)
            if late:
                yield tiny.call(start + 49_000 * US, start + 49_100 * US, "cuModuleLoadData")
            for row in launched(start, 100 * i + 2, at=late + 700, took=5, kernel_ns=900 * US):
                if late and isinstance(row, Op):
                    yield replace(row, name=built, short_name=built, shape=shape)
                else:
                    yield row
            start += (2_000 + late) * US

    return judged(*rows())


def test_one_step_of_many_that_builds_code_is_a_finding_with_its_step() -> None:
    (one,) = found(recompile, building_in(12))
    assert one.title.startswith("step 12 compiles GPU code again: 5")
    first = find(building_in(12)).valued[0]
    assert first.finding.rule == "recompile"
    assert 2 * MS < first.high_ns < 3.2 * MS  # 50 ms over 20 steps


@pytest.mark.parametrize(
    ("built", "grid", "reason"),
    [
        ("new_kernel", 1, "1 kernel runs for the first time: new_kernel"),
        (KERNEL, 9, "a shape is new: the grid of k is 9x1x1, 1x1x1 before"),
    ],
)
def test_new_kernels_and_new_shapes_are_named(built: str, grid: int, reason: str) -> None:
    (one,) = found(recompile, building_in(12, built=built, grid=grid))
    assert reason in one.evidence


def test_loops_that_build_nothing_compile_nothing() -> None:
    assert not found(recompile, building_in(None))
