"""Weights that weight norm computes again in each step, though nothing trains."""

from dataclasses import replace
from typing import Any, Final

import pytest

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.weight_norm import weight_norm
from nsysflow.runtime.protocol import AUTO_DOMAIN
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import (
    US,
    Row,
    asked,
    changes_of,
    found,
    judged,
    launched,
    left_of,
    repeated,
    subject_of,
)
from tests.in_us import opened

FIRST: Final = (
    "void at::native::<unnamed>::weight_norm_fwd_first_dim_kernel<float, float>(T1 *, T2 *)"
)
LAST: Final = FIRST.replace("first", "last")
BACKWARD: Final = FIRST.replace("fwd", "bwd")
TRANSPOSED: Final = "void cudnn::detail::dgrad_engine<float, (int)512, (int)6>(int, int, int)"
LAYERS: Final = 3


def serving(
    *kernels: str, phase: str = "forward", automatic: bool = False, call: str = "cudaLaunchKernel"
) -> JudgedReport:
    """Steps of `LAYERS` layers: before each kernel the host works 25 us and launches for 5 us. It
    launches an addition before `phase`; `automatic` steps have no phase, and no addition."""
    rows: list[Row] = [
        row
        for place, name in enumerate(kernels * LAYERS)
        for row in launched(50 + 30 * place, 3, name=name, call=call)
    ]
    if automatic:
        rows.append(replace(opened(0, 1, "step"), domain=AUTO_DOMAIN))
    else:
        rows += [opened(0, 999, "step"), opened(10, 900, phase), *launched(1, 3, name=names.ADD)]
    return judged(*repeated(rows, 1_000))


@pytest.mark.parametrize("name", [FIRST, LAST])
def test_weight_norm_in_inference_is_named(name: str) -> None:
    one = asked(weight_norm, serving(names.PRODUCT, name, TRANSPOSED))
    assert one.title == "weight norm computes 3 weights again in each step"
    assert "remove_parametrizations" in one.change[0]
    assert (one.method, one.phase) == ("bound", "step/forward")
    assert left_of(one) == {name: 0.0}
    # of nine pieces of code the first is of the loop; three of the others go, with their launches
    [(phase, factor)] = changes_of(one).faster_host
    assert phase == "step/forward"
    assert factor == pytest.approx(1 - 3 * (25 + 5) / (8 * 25))
    assert one.size_ns == 3 * (25 + 5 + 3) * US


@pytest.mark.parametrize("automatic", [False, True])
def test_code_before_a_phase_or_step_is_not_of_weight_norm(automatic: bool) -> None:
    one = asked(weight_norm, serving(FIRST, names.PRODUCT, automatic=automatic))
    [(_, factor)] = changes_of(one).faster_host
    assert factor == pytest.approx(1 - 2 * (25 + 5) / (5 * 25))


def test_the_code_before_a_cuda_graph_stays() -> None:
    one = asked(weight_norm, serving(FIRST, names.PRODUCT, call="cudaGraphLaunch"))
    assert left_of(one) == {FIRST: 0.0}
    assert changes_of(one).faster_host == ()


@pytest.mark.parametrize(
    ("kernels", "more"),
    [
        pytest.param([FIRST, names.PRODUCT, BACKWARD], {}, id="a backward kernel"),
        pytest.param([FIRST, names.PRODUCT, "multi_tensor_apply_kernel"], {}, id="an optimizer"),
        pytest.param([FIRST, names.PRODUCT], {"phase": "backward"}, id="a backward pass"),
        pytest.param([names.NORM, names.PRODUCT], {}, id="another norm"),
    ],
)
def test_nothing_is_said_of_weight_norm(kernels: list[str], more: dict[str, Any]) -> None:
    assert not found(weight_norm, serving(*kernels, **more))


def test_nothing_is_said_without_steps() -> None:
    assert not found(weight_norm, subject_of([(FIRST, 10), (names.PRODUCT, 10)]))
