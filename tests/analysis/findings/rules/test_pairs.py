"""Near pairs that are found by the distances of all pairs of points."""

from typing import Final

import pytest

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.pairs import all_pairs
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import Kernels, Row, asked, found, left_of, loop, seen

NATIVE: Final = "void at::native::"
MINUS: Final = f"{NATIVE}elementwise_kernel<gpu_kernel_impl_nocast<CUDAFunctor_add<float>>>(int)"
SQUARES: Final = f"{NATIVE}vectorized_elementwise_kernel<pow_tensor_scalar_kernel_impl<float>>(T1)"
SUMS: Final = f"{NATIVE}reduce_kernel<(int)512, (int)1, ReduceOp<float, sum_functor<float>>>(T3)"
NORMS: Final = f"{NATIVE}reduce_kernel<(int)512, (int)1, ReduceOp<float, NormTwoOps<float>>>(T3)"
BELOW: Final = f"{NATIVE}vectorized_elementwise_kernel<compare_scalar_kernel<float>>(int, T2)"
SWEEP: Final = "void at_cuda_detail::cub::detail::select::DeviceSelectSweepKernel<long>(T1)"
INDICES: Final = f"{NATIVE}<unnamed>::write_indices<long>(long *)"
CDIST: Final = f"{NATIVE}cdist_kernel_cuda_impl<float, dists<float>::two>(float *)"

MODEL: Final[Kernels] = [(names.PRODUCT, 100), (names.ADD, 3)]
LISTED: Final[Kernels] = [(MINUS, 60), (SQUARES, 60), (SUMS, 100), (BELOW, 10), (SWEEP, 15)]


def program(kernels: Kernels, every: int = 1) -> JudgedReport:
    """Eight steps; each `every`th one runs these behind its model."""
    others: Kernels = [(names.NORM, us) for _, us in kernels]

    def body(i: int) -> list[Row]:
        return seen(
            *((name, us, "f") for name, us in [*MODEL, *(others if i % every else kernels)])
        )

    return loop(body, every=1_000)


@pytest.mark.parametrize(
    "kernels",
    [
        [*LISTED, (INDICES, 5)],
        [(MINUS, 60), (NORMS, 100), (BELOW, 10), (SWEEP, 15)],
        [(CDIST, 100), (BELOW, 10), (SWEEP, 15)],
    ],
    ids=["squares", "norms", "cdist"],
)
def test_distances_that_are_compared_and_listed_in_each_step_are_named(kernels: Kernels) -> None:
    one = asked(all_pairs, program(kernels))
    assert one.title.startswith("near pairs are found by distances of all pairs, in each step: ")
    assert left_of(one) == {name: 0.0 for name, _ in kernels if name != INDICES}
    assert one.method == "bound"


def test_several_lists_a_step_are_counted() -> None:
    one = asked(all_pairs, program([*LISTED, (INDICES, 5)] * 3))
    assert "all pairs, 3 times a step: " in one.title


@pytest.mark.parametrize(
    ("kernels", "every"),
    [
        (LISTED, 4),
        ([(MINUS, 60), (SUMS, 100), (BELOW, 10), (SWEEP, 15)], 1),
        ([(SQUARES, 60), (SUMS, 400), (BELOW, 10), (SWEEP, 15)], 1),
        (LISTED[:-1], 1),
        ([*LISTED[:3], (names.PRODUCT, 5), *LISTED[3:]], 1),
        ([(name, us // 30) for name, us in LISTED], 1),
    ],
    ids=[
        "in every fourth step",
        "sums of what is no square",
        "sums of many numbers",
        "without a list",
        "a product between",
        "little",
    ],
)
def test_no_list_of_near_pairs_is(kernels: Kernels, every: int) -> None:
    assert not found(all_pairs, program(kernels, every))
