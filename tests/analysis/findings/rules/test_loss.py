"""Losses that pass over all logits several times."""

from typing import Final

import pytest

from nsysflow.analysis.findings.rules.layout import layout_transpose
from nsysflow.analysis.findings.rules.loss import unfused_loss
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import Kernels, asked, found, left_of, subject_of

NATIVE: Final = "void at::native::(anonymous namespace)::"
FORWARD: Final = NATIVE + (
    "cunn_SoftMaxForward<8, float, float, float,"
    " at::native::(anonymous namespace)::LogSoftMaxForwardEpilogue>(float*, float const*, int)"
)
BACKWARD: Final = NATIVE + (
    "cunn_SoftMaxBackward<8, float, float, float,"
    " at::native::(anonymous namespace)::LogSoftMaxBackwardEpilogue>(float*, float const*, int)"
)
LOSS: Final = NATIVE + "nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*)"
SUM: Final = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(int)"
PICK: Final = "void at::native::_scatter_gather_elementwise_kernel<128, 8, long>(int)"
COPY: Final = (
    "void at::native::elementwise_kernel<128, 4, void at::native::gpu_kernel_impl_nocast<"
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>>(int)"
)
OF_SCORES: Final = FORWARD.replace("LogSoftMax", "SoftMax")
PRODUCT: Final = (names.PRODUCT, 400)
STEP: Final[Kernels] = [
    PRODUCT,
    *((FORWARD, 100), (LOSS, 10), (SUM, 5), (BACKWARD, 150), (names.ADD, 50)),
    PRODUCT,
]


def test_one_pass_over_the_logits_stays() -> None:
    one = asked(unfused_loss, subject_of(STEP))
    assert one.title == "the loss passes over all logits several times: 28 % of kernel time"
    assert one.method == "bound"
    assert left_of(one) == dict.fromkeys((LOSS, SUM, BACKWARD, names.ADD), 0.0)


@pytest.mark.parametrize(
    ("picks", "advice"),
    [
        pytest.param(LOSS, "a fused cross-entropy", id="a cross-entropy"),
        pytest.param(PICK, "logits only for tokens that count", id="log-probabilities of tokens"),
    ],
)
def test_what_to_do_goes_by_the_loss(picks: str, advice: str) -> None:
    kernels = [(picks if name == LOSS else name, us) for name, us in STEP]
    one = asked(unfused_loss, subject_of(kernels))
    assert one.change[0].startswith(advice)


@pytest.mark.parametrize(
    ("kernels", "took"),
    [
        pytest.param([*STEP, PRODUCT, PRODUCT], "1.20 ms", id="two behind its backward pass"),
        pytest.param([row for row in STEP if row[0] != BACKWARD], "400 us", id="only forward"),
    ],
)
def test_what_the_products_beside_take(kernels: Kernels, took: str) -> None:
    one = asked(unfused_loss, subject_of(kernels))
    assert f"the products beside it take {took} more" in one.evidence[2]


def test_what_a_loss_copies_is_not_a_matter_of_order() -> None:
    """Copies of a part of the logits go with the loss; those elsewhere may be transposes."""
    copied = [*STEP[:2], (COPY, 200), *STEP[2:]]
    assert found(unfused_loss, subject_of(copied))
    assert not found(layout_transpose, subject_of(copied))
    assert found(layout_transpose, subject_of([*STEP, (COPY, 200)]))


@pytest.mark.parametrize(
    "kernels",
    [
        pytest.param(
            [PRODUCT, (OF_SCORES, 100), (names.ADD, 50), PRODUCT], id="a softmax of scores"
        ),
        pytest.param([*[PRODUCT] * 20, (FORWARD, 100), (BACKWARD, 150)], id="a small share"),
        pytest.param([(BACKWARD, 150), PRODUCT], id="only its backward"),
    ],
)
def test_nothing_is_said_of_the_loss(kernels: Kernels) -> None:
    assert not found(unfused_loss, subject_of(kernels))
