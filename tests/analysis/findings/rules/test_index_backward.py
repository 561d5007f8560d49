"""Rows that are added one after another: gradients of an index, and deterministic algorithms."""

from typing import Final

import pytest

from nsysflow.analysis.findings.rules.index_backward import index_backward
from tests import tiny
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import (
    US,
    Kernels,
    Row,
    asked,
    changes_of,
    judged,
    left_of,
    named,
    subject_of,
)
from tests.in_us import kernel, launch, opened

NATIVE: Final = f"void {names.NATIVE}"
SIMPLE: Final = f"{NATIVE}vectorized_elementwise_kernel<(int)4, {names.NATIVE}"
PRODUCT: Final = (names.PRODUCT, 100)
ADDED: Final = (f"{NATIVE}indexing_backward_kernel<float, (int)4>(long const*, T1)", 40)
CHECKED: Final = (f"{NATIVE}_assert_async_cuda_kernel<bool>(T1 const*)", 2)
WRAPPED: Final = (f"{SIMPLE}remainder_kernel_cuda()::[lambda(long) (instance 1)]>(int)", 1)
SORTED: Final = ("void cub::DeviceRadixSortOnesweepKernel<long>(T1)", 8)
FILL: Final = (f"{SIMPLE}FillFunctor<float>, std::array<char *, (unsigned long)1>>(int)", 5)
TIMES: Final = (f"{SIMPLE}AUnaryFunctor<float, float, float, MulFunctor<float>>, char>(int)", 20)
INDEX: Final[Kernels] = [CHECKED, WRAPPED, SORTED, ADDED]
BACKWARD: Final = (tiny.opened(0, 1_000_000, "backward"),)


def test_what_checks_and_sorts_an_index_right_before_its_rows_are_added_counts() -> None:
    one = asked(index_backward, subject_of([PRODUCT, SORTED, TIMES, *INDEX], ranges=BACKWARD))
    assert one.title == "the gradient of tensor[index] is added row after row: 28 % of kernel time"
    assert one.evidence[0].endswith("add rows; 3 prepare their index")
    gone = {CHECKED[0]: 0.0, WRAPPED[0]: 0.0, SORTED[0]: 0.5, ADDED[0]: 0.0}
    assert left_of(one) == gone


@pytest.mark.parametrize(
    ("phase", "first"),
    [
        ("backward", "tensor.index_select"),
        ("forward", "torch.use_deterministic_algorithms(False),"),
    ],
)
def test_indexed_gradients_in_the_forward_pass_may_be_of_deterministic_algorithms(
    phase: str, first: str
) -> None:
    ranges = (tiny.opened(0, 1_000_000, phase),)
    one = asked(index_backward, subject_of([PRODUCT, ADDED], ranges=ranges))
    assert one.change[0].startswith(first)
    assert one.title.startswith("the gradient of tensor[index]")


def test_fills_of_new_tensors_tell_deterministic_algorithms_and_count() -> None:
    # torch.zeros: filled as new, then with zeros
    kernels = [PRODUCT, FILL, FILL, TIMES, *INDEX, PRODUCT, FILL]
    one = asked(index_backward, subject_of(kernels))
    assert one.title == "deterministic algorithms, which add row after row: 28 % of kernel time"
    assert one.evidence[0].endswith("4 prepare their index, 2 fill new tensors")
    assert one.change[0].startswith("torch.use_deterministic_algorithms(False): rows are added")
    assert left_of(one) == {
        **{name: 0.0 for name, _ in (*INDEX, TIMES)},
        FILL[0]: round(1 / 3, 2),
    }


def test_the_host_launches_once_where_rows_are_added_in_parallel() -> None:
    rows: list[Row] = []
    kernels = [PRODUCT, PRODUCT, *INDEX]
    for number, (name, us) in enumerate(kernels * 8):
        at = 200 * (number // len(kernels)) + 20 * (number % len(kernels))
        if not number % len(kernels):
            rows.append(opened(at, at + 200, "step"))
        rows += [
            launch(at + 15, at + 20, number),
            named(kernel(at + 21, at + 21 + us, number), name),
        ]
    one = asked(index_backward, judged(*rows))
    # four launches of 5 us, and the code before all but the first of them
    took = 4 * 5 + 3 * 15
    assert f"launches and the code between them take the host {took}.0 us" in one.evidence[-1]
    assert one.size_ns == (took + sum(us for _, us in INDEX)) * US
    [(phase, factor)] = changes_of(one).faster_host
    assert phase == "step"
    assert factor == pytest.approx(1 - took / (5 * 15))
