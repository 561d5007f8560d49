"""`layout-transpose` and `cast-storm` name kernels that compute nothing."""

import pytest

from nsysflow.analysis.findings.rules.gpu.cast_storm import cast_storm
from nsysflow.analysis.findings.rules.gpu.layout_transpose import layout_transpose
from tests.analysis.findings.kernels import names
from tests.analysis.findings.rules.gpu.programs import asked, left_of, real, subject_of

PRODUCT = (names.PRODUCT, 80)


def test_conversions_for_cudnn_ask_for_channels_last() -> None:
    finding = asked(layout_transpose, subject_of([PRODUCT, (names.TO_NHWC, 20)]))
    assert left_of(finding) == {names.TO_NHWC: 0.0}
    assert finding is not None
    assert "channels_last" in finding.change[0]


def test_copies_of_strided_tensors_ask_for_fewer_of_them() -> None:
    finding = asked(layout_transpose, subject_of([PRODUCT, (names.STRIDED, 20)]))
    assert finding is not None
    assert ".contiguous()" in finding.change[0]


@pytest.mark.parametrize("name", [names.ADD, names.UP, names.PRODUCT])
def test_other_kernels_are_no_copies_into_another_order(name: str) -> None:
    assert asked(layout_transpose, subject_of([PRODUCT, (name, 20)])) is None


def test_few_copies_are_usual() -> None:
    assert asked(layout_transpose, subject_of([PRODUCT, (names.STRIDED, 4)])) is None
    assert asked(cast_storm, subject_of([PRODUCT, (names.DOWN, 8)])) is None


def test_many_casts_are_a_storm() -> None:
    finding = asked(cast_storm, subject_of([PRODUCT, (names.DOWN, 10), (names.UP, 10)]))
    assert left_of(finding) == {names.DOWN: 0.0, names.UP: 0.0}


def test_gpt2_casts_under_autocast_and_a_program_in_bf16_does_not() -> None:
    assert asked(cast_storm, real("h200-gpt2-eager")) is not None
    assert asked(cast_storm, real("nan_check-sync")) is None


def test_convolutions_in_nchw_convert_and_products_in_bf16_do_not() -> None:
    finding = asked(layout_transpose, real("h200-nchw"))
    assert finding is not None
    assert "18 % of kernel time" in finding.title
    assert "channels_last" in finding.change[0]
    assert asked(layout_transpose, real("nan_check-sync")) is None
