"""Matrices that are factorized or multiplied at a cost that they need not have."""

from dataclasses import replace
from typing import Final

import pytest

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.matrices import lu_factorization, small_matrices
from nsysflow.analysis.findings.rules.tensor_cores import fp32_matmul
from tests import tiny
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import (
    Kernels,
    asked,
    found,
    judged,
    left_of,
    loop,
    named,
    one_gpu,
    seen,
    subject_of,
)
from tests.in_us import US, kernel, launch
from tests.oracle.model import Shape

TINY: Final = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_"
    "alignc4_execute_kernel__5x_cublas"
)
LU: Final = "void getrf_pivot<getrf_params_<float, (int)256, (int)2>>(int, int, int, void *)"
TRIANGLE: Final = "void kernel_trsm_l_mul32<float, (int)8, (bool)0>(int, int, T1 const *)"
ADD, FP32 = names.ADD, names.FP32[0]


def products(**grid: int) -> JudgedReport:
    """A launch that multiplies matrices on these blocks."""
    op = replace(kernel(10, 110, 1), shape=Shape(**grid))
    return judged(launch(0, 5, 1), named(op, TINY), devices=one_gpu("NVIDIA H200"))


def test_products_of_one_tile_each_are_of_small_matrices_and_gain_nothing_by_tensor_cores() -> None:
    subject = products(grid_z=65_535)
    one = asked(small_matrices, subject)
    assert one.title == "small matrices are multiplied one by one: 100 % of kernel time"
    assert left_of(one) == {TINY: 0.0}
    assert "2 x 2 to 4 x 4" in one.change[0]
    assert not found(fp32_matmul, subject)


@pytest.mark.parametrize("grid", [{"grid_x": 2, "grid_z": 65_535}, {"grid_z": 999}])
def test_larger_or_fewer_matrices_are_not_small_ones(grid: dict[str, int]) -> None:
    assert not found(small_matrices, products(**grid))
    assert found(fp32_matmul, products(**grid))


def test_lu_counts_with_what_its_line_launches_and_what_solves_in_the_backward_pass() -> None:
    forward = seen((LU, 40, "volume"), (ADD, 20, "volume"), (ADD, 60, "forward"))
    gradient = launch(70, 75, 9), named(kernel(300, 340, 9), TRIANGLE)
    backward = tiny.opened(68 * US, 90 * US, "backward")
    one = asked(lu_factorization, loop([*forward, *gradient, backward], every=400))
    assert one.source == "train.py:1 in volume"
    assert one.title.startswith("a matrix is factorized by LU: 62 % of kernel time")
    assert left_of(one) == {LU: 0.0, TRIANGLE: 0.0, ADD: 0.75}
    assert one.method == "bound"


@pytest.mark.parametrize(
    "kernels", [[(LU, 9), (ADD, 91)], [(TRIANGLE, 50), (ADD, 50)], [(ADD, 100)]]
)
def test_little_lu_and_triangles_without_one_are_no_finding(kernels: Kernels) -> None:
    assert not found(lu_factorization, subject_of(kernels))


@pytest.mark.parametrize(
    ("kernels", "counts"),
    [
        ([(LU, 10), (FP32, 50), (FP32, 50), (TRIANGLE, 10)], False),
        ([(LU, 10), (FP32, 50), (ADD, 10), (TRIANGLE, 10)], True),
        ([(FP32, 50), (LU, 10), (TRIANGLE, 10)], True),
    ],
)
def test_products_between_kernels_of_a_solver_stay_as_they_are(
    kernels: Kernels, counts: bool
) -> None:
    assert bool(found(fp32_matmul, subject_of(kernels))) == counts
