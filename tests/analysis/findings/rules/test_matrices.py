"""Many small matrices, factorized by a library."""

from collections.abc import Iterator
from typing import Final

import pytest

from nsysflow.analysis.findings.rules.matrices import small_matrices
from tests import tiny
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import (
    US,
    Kernels,
    Row,
    asked,
    left_of,
    loop,
    named,
    subject_of,
)

LU: Final = "void getrf_semiwarp<float, float, (int)2, (int)3, (bool)1>(int, T1 *const *, int)"
SOLVE: Final = "void trsm_batch_left_lower_kernel<float>(cublasTrsmBatchParams<T1>, const T1 *)"


def test_kernels_of_lu_and_of_its_triangles_are_named() -> None:
    found = asked(small_matrices, subject_of([(LU, 20), (SOLVE, 20), (names.ADD, 60)]))
    assert found is not None
    assert found.title == "small matrices are factorized one by one: 40 % of kernel time"
    assert found.method == "bound"
    assert left_of(found) == {LU: 0.0, SOLVE: 0.0}


@pytest.mark.parametrize(("copy_us", "counts"), [(30, True), (50, False)])
def test_what_else_the_line_launches_counts_where_they_take_half_of_its_time(
    copy_us: int, counts: bool
) -> None:
    def rows(start: int, i: int) -> Iterator[Row]:
        launches = ((LU, 40, "invert"), (names.ADD, copy_us, "invert"), (names.MUL, 40, "forward"))
        begin = start + 100 * US
        for number, (name, us, function) in enumerate(launches, 100 * i + 1):
            at = start + 20 * (number % 10) * US
            yield tiny.launch(at, at + 10 * US, number)
            yield named(tiny.kernel(begin, begin + us * US, number), name)
            yield tiny.sample(at + US, function)
            begin += us * US

    found = asked(small_matrices, loop(rows, every=300))
    assert found is not None
    assert found.source == "train.py:1 in invert"
    assert left_of(found) == ({LU: 0.0, names.ADD: 0.0} if counts else {LU: 0.0})


@pytest.mark.parametrize("kernels", [[(LU, 9), (names.ADD, 91)], [(names.ADD, 50)]])
def test_nothing_is_said_of_matrices(kernels: Kernels) -> None:
    assert asked(small_matrices, subject_of(kernels)) is None
