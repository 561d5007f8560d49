"""`unfused-elementwise` finds chains of kernels that only move memory."""

import pytest

from nsysflow.analysis.findings.find import find
from nsysflow.analysis.findings.rules.gpu.unfused_elementwise import unfused_elementwise
from tests.analysis.findings.kernels import names
from tests.analysis.findings.rules.gpu.programs import Kernels, asked, left_of, real, subject_of

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
