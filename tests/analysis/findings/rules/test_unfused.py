"""Kernels that could be one."""

import pytest

from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.rules.unfused_attention import unfused_attention
from nsysflow.analysis.findings.rules.unfused_elementwise import unfused_elementwise
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.programs import Kernels, asked, left_of, real, subject_of

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


LAYER: Kernels = [(names.NORM, 103), (names.MUL, 63), (names.ADD, 94)]


def test_a_fused_chain_takes_as_long_as_its_longest_kernel() -> None:
    finding = asked(unfused_elementwise, subject_of(LAYER))
    assert finding is not None
    assert finding.size_ns == pytest.approx(157_000, abs=2)


def test_each_norm_begins_a_kernel_of_its_own() -> None:
    finding = asked(unfused_elementwise, subject_of(LAYER * 4))
    assert finding is not None
    assert finding.size_ns == pytest.approx(4 * 157_000, abs=8)
    assert "4 chains" in finding.evidence[1]


def test_a_matmul_between_two_parts_a_chain() -> None:
    kernels: Kernels = [(names.ADD, 50), (names.PRODUCT, 10), (names.MUL, 50)]
    assert asked(unfused_elementwise, subject_of(kernels)) is None


def test_chains_of_less_than_15_percent_are_the_usual_glue() -> None:
    glue: Kernels = [(names.ADD, 7), (names.MUL, 7)]
    assert asked(unfused_elementwise, subject_of([(names.PRODUCT, 86), *glue])) is None
    assert asked(unfused_elementwise, subject_of([(names.PRODUCT, 70), *glue])) is not None


def test_what_attention_and_an_optimizer_do_is_left_to_their_rules() -> None:
    attention: Kernels = [
        (names.PRODUCT, 9),
        (names.MUL, 50),
        (names.SOFTMAX, 50),
        (names.PRODUCT, 9),
    ]
    assert asked(unfused_elementwise, subject_of(attention)) is None
    updates: Kernels = [(names.MUL, 9), (names.ADDCDIV, 9)] * 10
    assert asked(unfused_elementwise, subject_of(updates)) is None


def test_the_eager_layers_of_the_sample_are_to_be_fused_first() -> None:
    first = find(real("fusion-eager")).valued[0]
    assert first.finding.rule == "unfused-elementwise"
    assert first.finding.phase == "step/forward"
    assert first.pct == pytest.approx(60, abs=3)  # 4.24 to 1.59 ms in docs/case-studies.md: 62 %


@pytest.mark.parametrize("name", ["fusion-compile", "fusion-fused", "nan_check-sync", "h2d-pinned"])
def test_it_is_quiet_where_chains_are_fused_or_short(name: str) -> None:
    assert asked(unfused_elementwise, real(name)) is None


def test_the_factors_take_off_what_the_chain_saves() -> None:
    left = left_of(asked(unfused_elementwise, subject_of(LAYER)))
    assert set(left.values()) == {round(103 / 260, 2)}
