"""Losses that pass over all logits several times."""

from typing import Final

import pytest

from nsysflow.analysis.findings.rules.loss import unfused_loss
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import Kernels, asked, left_of, subject_of

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
OF_SCORES: Final = FORWARD.replace("LogSoftMax", "SoftMax")
PRODUCT: Final = (names.PRODUCT, 400)
STEP: Final[Kernels] = [
    PRODUCT,
    *((FORWARD, 100), (LOSS, 10), (SUM, 5), (BACKWARD, 150), (names.ADD, 50)),
    PRODUCT,
]


def test_one_pass_over_the_logits_stays() -> None:
    found = asked(unfused_loss, subject_of(STEP))
    assert found is not None
    assert found.title == "the loss passes over all logits several times: 28 % of kernel time"
    assert found.method == "bound"
    assert left_of(found) == dict.fromkeys((LOSS, SUM, BACKWARD, names.ADD), 0.0)


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
    assert asked(unfused_loss, subject_of(kernels)) is None
