"""Which kernels are a program's own, and what is said of them."""

from dataclasses import replace

import pytest

import nsysflow
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.last_resort import largest_kernels
from tests import tiny
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import US, Row, found, named
from tests.oracle.model import to_trace

OWN = "matmul_k(float*, float*, float*, int, int, int)"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"


def program_of(kernel: str, beside: str) -> JudgedReport:
    """A kernel of 1 ms and one of 1 us, of a program without threads of PyTorch."""
    rows: list[Row] = []
    for number, (name, start, end) in enumerate([(kernel, 10, 1_010), (beside, 1_011, 1_012)], 1):
        rows += [tiny.launch(number * US, number * US + US // 2, number)]
        rows += [named(tiny.kernel(start * US, end * US, number), name)]
    return JudgedReport(nsysflow.analyze(to_trace(replace(tiny.plain_of(*rows), threads=()))))


@pytest.mark.parametrize(
    ("kernel", "beside", "says"),
    [
        (OWN, names.PRODUCT, "a kernel of your own, matmul_k: >99 %"),
        (OWN, FILL, "a kernel of your own, matmul_k: >99 %"),  # a program of PyTorch
        ("nvkernel_solve_F1L204_2", names.ADD, "a kernel of your own, nvkernel_solve_F1L204_2"),
        ("void solve<128>(double *, int)", "k", "a kernel of your own, solve"),
        # an extension of PyTorch, and what libraries have
        ("void solve<128>(double *, int)", FILL, "other"),
        ("void gemv<int, cublasGemvParams>(float *)", "k", "matmul"),
        ("void lib::solve(double *)", "k", "other"),
        (names.PRODUCT, OWN, "matmul"),
    ],
)
def test_a_program_s_own_kernels_are_named_as_such(kernel: str, beside: str, says: str) -> None:
    (one,) = found(largest_kernels, program_of(kernel, beside))
    assert one.title.startswith(f"most kernel time is {says}")
    assert one.fits == ("of your own" in says)


def test_a_product_of_one_s_own_is_compared_with_a_library_s() -> None:
    (one,) = found(largest_kernels, program_of(OWN, "k"))
    assert one.change[0] == "compare it with a library's: cuBLAS (cublasGemmEx), or CUTLASS"
    assert one.change[1].endswith("Nsight Compute: ncu --set full -k regex:matmul_k")
