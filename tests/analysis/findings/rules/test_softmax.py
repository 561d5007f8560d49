"""Softmax over an axis that is not the last one in memory."""

from dataclasses import replace
from typing import Final

import pytest

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules import Rule
from nsysflow.analysis.findings.rules.fusion import unfused_elementwise
from nsysflow.analysis.findings.rules.layout import layout_transpose
from nsysflow.analysis.findings.rules.loss import (
    CHANGE_OF_LOSS,
    CHANGE_OF_SOFTMAX,
    strided_softmax,
)
from nsysflow.analysis.findings.rules.occupancy import small_grid
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import (
    Kernels,
    asked,
    found,
    judged,
    left_of,
    one_gpu,
    seen,
    subject_of,
)
from tests.oracle.model import Op, Shape

NATIVE: Final = "void at::native::<unnamed>::"
FORWARD: Final = NATIVE + (
    "cunn_SpatialSoftMaxForward<c10::BFloat16, float, c10::BFloat16, int,"
    " at::native::<unnamed>::LogSoftMaxForwardEpilogue>(T3 *, const T1 *, T4, T4, T4)"
)
BACKWARD: Final = NATIVE + (
    "cunn_SpatialSoftMaxBackward<c10::BFloat16, float, c10::BFloat16,"
    " at::native::<unnamed>::LogSoftMaxBackwardEpilogue>(T1 *, const T3 *, const T3 *)"
)
LOSS: Final = NATIVE + "nll_loss2d_forward_kernel<float, float, int>(T1 *, T1 *, const T1 *)"
OF_SCORES: Final = FORWARD.replace("LogSoftMax", "SoftMax")
LAST: Final = FORWARD.replace("Spatial", "")
COPY: Final = names.STRIDED
PRODUCT: Final = (names.PRODUCT, 100)
STEP: Final[Kernels] = [
    PRODUCT,
    *((COPY, 10), (FORWARD, 120), (LOSS, 10), (BACKWARD, 50), (COPY, 10)),
    PRODUCT,
]
CHAIN: Final[Kernels] = [
    PRODUCT,
    *((COPY, 30), (FORWARD, 120), (names.ADD, 60), (names.ADD, 60), (BACKWARD, 50), (COPY, 30)),
    PRODUCT,
]
FIFTH: Final = (1_280,)
"""Blocks of 32 threads, which are a fifth of the 204,800 that the GPU holds."""


def test_what_is_left_goes_by_the_threads_and_copies_for_that_order_go() -> None:
    one = asked(strided_softmax, subject_of(STEP, blocks=FIFTH))
    assert one.title == "softmax over an axis that is not the last: 48 % of kernel time"
    assert left_of(one) == {FORWARD: 0.2, BACKWARD: 0.2, COPY: 0.0}
    assert "the longest has 20 % of the threads that the GPU holds" in one.evidence
    assert "copies for that order take 20.0 us more" in one.evidence
    assert (one.method, one.effort, one.change) == ("bound", "line", CHANGE_OF_LOSS)


def test_copies_elsewhere_stay() -> None:
    """Such as those of heads of attention, which have the same name."""
    one = asked(strided_softmax, subject_of([*STEP, (COPY, 20)], blocks=FIFTH))
    assert left_of(one)[COPY] == 0.5


def test_a_softmax_without_a_loss_has_advice_of_its_own() -> None:
    one = asked(strided_softmax, subject_of([(names.ADD, 50), (OF_SCORES, 50)]))
    assert one.change == CHANGE_OF_SOFTMAX


def test_the_line_is_that_of_the_forward_pass() -> None:
    rows = seen((FORWARD, 50, "loss"), (BACKWARD, 200, "step"), (names.ADD, 50, "loss"))
    shaped = [replace(row, shape=Shape()) if isinstance(row, Op) else row for row in rows]
    one = asked(strided_softmax, judged(*shaped, devices=one_gpu("NVIDIA H200")))
    assert one.source == "train.py:1 in loss"


@pytest.mark.parametrize(
    ("kernels", "blocks"),
    [
        pytest.param(STEP, 6_400, id="images have threads enough"),
        pytest.param(STEP, 1_700, id="more than a quarter of the threads"),
        pytest.param([*STEP, (names.PRODUCT, 5_000)], 10, id="hardly any time"),
        pytest.param([PRODUCT, (LAST, 100), (LOSS, 10), PRODUCT], 10, id="the last axis"),
        pytest.param([PRODUCT, (OF_SCORES, 100), PRODUCT], 10, id="attention that is not fused"),
    ],
)
def test_nothing_is_said_of_the_softmax(kernels: Kernels, blocks: int) -> None:
    assert not found(strided_softmax, subject_of(kernels, blocks=(blocks,)))


def test_nothing_is_said_where_the_threads_are_not_known() -> None:
    rows = seen((FORWARD, 200, "loss"), (BACKWARD, 200, "step"))
    assert not found(strided_softmax, judged(*rows))


@pytest.mark.parametrize("rule", [small_grid, unfused_elementwise, layout_transpose])
def test_other_findings_do_not_count_these_kernels(rule: Rule) -> None:
    assert not {FORWARD, BACKWARD, COPY} & _named(rule, subject_of(CHAIN, blocks=(10,)))


@pytest.mark.parametrize("rule", [unfused_elementwise, layout_transpose])
def test_other_findings_count_them_where_they_have_threads_enough(rule: Rule) -> None:
    assert {FORWARD, COPY} & _named(rule, subject_of(CHAIN, blocks=(6_400,)))


def _named(rule: Rule, subject: JudgedReport) -> set[str]:
    """The kernels that a rule's findings make faster."""
    return {name for one in found(rule, subject) for name in left_of(one)}
