"""Calls of torch.autograd.grad, one after the other, and passes that only look like them."""

from typing import Final

import pytest

from nsysflow.analysis.findings.plan import FEWER_LAUNCHES
from nsysflow.analysis.findings.rules.backward_passes import backward_per_loss
from tests.analysis.findings.rules.test_backward_passes import LOSS, passes
from tests.analysis.findings.subjects import Kernels, changes_of, found

FORWARD: Final[Kernels] = [("sm90_gemm", 20), ("tanh", 5), ("sm90_gemm", 20)]
GRADIENT: Final[Kernels] = [("sm90_gemm_nt", 20), ("tanh_backward", 5), ("sm90_gemm_nt", 20)]
"""The gradient of what the network reads: a product for each of the forward pass."""

OTHER: Final[Kernels] = [("sm90_gemm_nt", 20), ("tanh_backward", 5), ("sm80_gemm_nt", 20)]
GRADIENTS: Final[Kernels] = [("sm90_gemm_nt", 20), ("sm90_gemm_tn", 20)] * 2
"""Those of a layer's input and its weight."""

CALLS: Final = [(LOSS, False), (GRADIENT, True)]


def test_calls_for_one_gradient_each_are_found() -> None:
    (one,) = found(backward_per_loss, passes((FORWARD, False), *CALLS * 5))
    assert one.title.startswith("5 backward passes in a row are the same: ")
    assert "torch.autograd.grad(u, (x, y, t), ...)" in one.change[0]
    assert "all but the first take 12 kernels a step" in one.evidence[0]
    assert "the code before each take the host" in one.evidence[-1]
    assert [phase for phase, _ in changes_of(one).faster_host] == ["step/backward"]
    assert one.rule in FEWER_LAUNCHES


def test_what_differentiates_such_passes_again_counts_by_their_share() -> None:
    again = [("sm90_gemm_nt", 20)] * 22
    (one,) = found(
        backward_per_loss, passes((FORWARD, False), *CALLS * 5, (FORWARD, False), (again, True))
    )
    # 12 of the 19 kernels of the forward pass, a loss and the gradients: 13 of 22
    assert one.evidence[2].startswith("13 of these kernels differentiate the repeated passes")
    assert "all but the first take 25 kernels a step" in one.evidence[0]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([(FORWARD * 2, False), *CALLS * 4], id="one pass would have as many products"),
        pytest.param([(FORWARD, False), (GRADIENT, True)] * 5, id="a forward pass before each"),
        pytest.param(
            [(FORWARD * 5, False), *[(LOSS, False), (GRADIENTS, True)] * 5], id="networks alike"
        ),
        pytest.param(
            [(FORWARD, False), *[*CALLS, (LOSS, False), (OTHER, True)] * 2], id="two of each"
        ),
        pytest.param([*CALLS * 5], id="no forward pass"),
    ],
)
def test_other_passes_are_no_such_calls(parts: list[tuple[Kernels, bool]]) -> None:
    assert not found(backward_per_loss, passes(*parts))
