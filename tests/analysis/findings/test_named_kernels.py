"""How findings name kernels: a program's own, and the lines that launched them."""

from dataclasses import replace

import pytest

import nsysflow
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.fusion import unfused_elementwise
from nsysflow.analysis.findings.rules.last_resort import largest_kernels
from tests import tiny
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import asked, found, launched, loop, seen
from tests.oracle.model import to_trace

OWN = "matmul_k(float*, float*, float*, int, int, int)"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"


IN_LIBRARY = "void lib::k(double *)"


def program_of(kernel: str, beside: str) -> JudgedReport:
    """A kernel of 1 ms and one of 1 us, of a program without threads of PyTorch."""
    rows = *launched(1, 1_000, name=kernel), *launched(7, 1, queued=1_000, name=beside)
    return JudgedReport(nsysflow.analyze(to_trace(replace(tiny.plain_of(*rows), threads=()))))


@pytest.mark.parametrize(
    ("kernel", "beside", "says"),
    [
        (OWN, names.PRODUCT, "a kernel of your own, matmul_k: >99 %"),
        (OWN, FILL, "a kernel of your own, matmul_k: >99 %"),  # a program of PyTorch
        ("nvkernel_solve_F1L204_2", names.ADD, "a kernel of your own, nvkernel_solve_F1L204_2"),
        ("void solve<128>(double *, int)", IN_LIBRARY, "a kernel of your own, solve"),
        ("render(vec3 *, int, curandStateXORWOW *)", IN_LIBRARY, "a kernel of your own, render"),
        ("norm_grad_w", FILL, "a Triton kernel, norm_grad_w: >99 %"),
        ("norm_grad_w", IN_LIBRARY, "a kernel of your own, norm_grad_w"),  # extern "C"
        # an extension of PyTorch, and what libraries have
        ("void solve<128>(double *, int)", FILL, "other"),
        ("void gemv<int, cublasGemvParams>(float *)", "k", "matmul"),
        ("void lib::solve(double *)", "k", "other"),
        ("seed_pseudo(int, curandOrdering, curandStateXORWOW *, unsigned int *)", "k", "other"),
        (names.PRODUCT, OWN, "matmul"),
    ],
)
def test_a_program_s_own_kernels_are_named_as_such(kernel: str, beside: str, says: str) -> None:
    (one,) = found(largest_kernels, program_of(kernel, beside))
    assert one.title.startswith(f"most kernel time is {says}")
    assert one.fits == ("of your own" in says or "Triton" in says)


def test_a_product_of_one_s_own_is_compared_with_a_library_s() -> None:
    (one,) = found(largest_kernels, program_of(OWN, IN_LIBRARY))
    assert one.change[0] == "compare it with a library's: cuBLAS (cublasGemmEx), or CUTLASS"
    assert one.change[1].endswith("Nsight Compute: ncu --set full -k regex:matmul_k")


def chain(first_us: int, second: str, product_us: int = 20) -> JudgedReport:
    """Two neighbours a step, and a product; these functions run while they are launched. Where the
    second one is `wait`, autograd's thread launches the kernel."""
    kernels = (names.ADD, first_us, "f"), (names.MUL, 40, second)
    product = names.PRODUCT, product_us, "multiply"
    return loop(seen(*kernels, product, threads={"wait": tiny.AUTOGRAD}), every=300)


@pytest.mark.parametrize(
    ("subject", "main", "evidence"),
    [
        (chain(60, "g"), "f", "train.py:1 in f 60 %, train.py:1 in g 40 %"),
        (chain(60, "f"), "f", "train.py:1 in f 100 %"),
        (chain(60, "f", product_us=10), "", "train.py:1 in f 100 %"),
        (chain(60, "wait"), "f", "train.py:1 in f 60 %, the backward pass 40 %"),
        (chain(30, "wait"), "", "train.py:1 in f 43 %, the backward pass 57 %"),
        (chain(4, "wait"), "", "the backward pass 91 %"),
    ],
)
def test_a_finding_names_the_lines(subject: JudgedReport, main: str, evidence: str) -> None:
    """One that has half of the time is its place, unless it launches nearly all kernels; a line
    with a tenth is named at least."""
    one = asked(unfused_elementwise, subject)
    at = f"train.py:1 in {main}" if main else ""
    assert one.source == at
    assert one.title.endswith(f", most at {at}" if main else "of kernel time")
    assert f"launched by {evidence}" in one.evidence


@pytest.mark.parametrize(
    ("second", "source", "place"),
    [
        pytest.param("f:7", "train.py:1 in f", "in f (train.py:1)", id="a function of two lines"),
        pytest.param("g:7", "", "", id="two functions"),
    ],
)
def test_a_function_is_the_place_where_no_line_is(second: str, source: str, place: str) -> None:
    kernels = (names.ADD, 40, "f"), (names.MUL, 35, second), (names.ADD, 30, "h")
    one = asked(unfused_elementwise, loop(seen(*kernels, (names.PRODUCT, 20, "m")), every=300))
    assert one.source == source
    assert one.title.partition(", most ")[2] == place


def test_functions_that_classes_share_are_no_place() -> None:
    kernels = (names.ADD, 40, "forward"), (names.MUL, 35, "forward:7"), (names.ADD, 30, "h")
    one = asked(unfused_elementwise, loop(seen(*kernels, (names.PRODUCT, 20, "m")), every=300))
    assert (one.source, one.title.partition(", most ")[2]) == ("", "")
