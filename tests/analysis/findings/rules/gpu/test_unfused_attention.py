"""`unfused-attention` finds a softmax between two matmuls."""

import pytest

from nsysflow.analysis.findings.find import find
from nsysflow.analysis.findings.rules.gpu.unfused_attention import unfused_attention
from tests.analysis.findings.kernels import names
from tests.analysis.findings.rules.gpu.programs import Kernels, asked, left_of, real, subject_of

PRODUCT, SOFTMAX = (names.PRODUCT, 20), (names.SOFTMAX, 40)


def test_all_between_the_two_matmuls_goes_and_they_stay() -> None:
    attention: Kernels = [PRODUCT, (names.MUL, 10), (names.UP, 10), SOFTMAX, (names.DOWN, 10)]
    finding = asked(unfused_attention, subject_of([*attention, PRODUCT]))
    assert left_of(finding) == dict.fromkeys((names.MUL, names.UP, names.SOFTMAX, names.DOWN), 0.0)


def test_the_same_kernel_elsewhere_keeps_its_time() -> None:
    kernels: Kernels = [PRODUCT, (names.MUL, 10), SOFTMAX, PRODUCT, (names.MUL, 30), PRODUCT]
    assert left_of(asked(unfused_attention, subject_of(kernels))) == {
        names.MUL: 0.75,
        names.SOFTMAX: 0.0,
    }


@pytest.mark.parametrize(
    "kernels",
    [
        [PRODUCT, (names.UP, 10), (names.LOG_SOFTMAX, 40), PRODUCT],
        [PRODUCT, SOFTMAX, (names.ADD, 10)],
        [(names.ADD, 10), SOFTMAX, PRODUCT],
        [PRODUCT, SOFTMAX, ("topk_kernel", 10), PRODUCT],
        [PRODUCT, *[(names.ADD, 10)] * 20, SOFTMAX, PRODUCT],
        [(names.FLASH, 100), PRODUCT],
        [PRODUCT],
    ],
    ids=["a loss", "a last layer", "a first one", "a router", "far away", "fused", "no softmax"],
)
def test_it_is_quiet_for(kernels: Kernels) -> None:
    assert asked(unfused_attention, subject_of(kernels)) is None


def test_real_attention_of_four_layers_is_found_forward_and_backward() -> None:
    first = find(real("h200-unfused-attention")).valued[0].finding
    assert first.rule == "unfused-attention"
    assert first.evidence[0] == "matmul, softmax, matmul: 8 times a step"


@pytest.mark.parametrize("name", ["h200-gpt2-eager", "h200-ddp-rank0"])
def test_programs_with_fused_attention_or_none_have_nothing_to_fuse(name: str) -> None:
    assert asked(unfused_attention, real(name)) is None
