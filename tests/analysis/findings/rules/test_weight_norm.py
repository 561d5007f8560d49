"""Weights that weight norm computes again in each step, though nothing trains."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.weight_norm import weight_norm
from nsysflow.runtime.protocol import AUTO_DOMAIN
from tests import tiny
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import US, Row, asked, judged, left_of, named, subject_of

FIRST: Final = (
    "void at::native::<unnamed>::weight_norm_fwd_first_dim_kernel<float, float>(T1 *, T2 *)"
)
LAST: Final = FIRST.replace("first", "last")
TRANSPOSED: Final = "void cudnn::detail::dgrad_engine<float, (int)512, (int)6>(int, int, int)"
LAYERS: Final = 3


def serving(
    *kernels: str, phase: str = "forward", automatic: bool = False, call: str = "cudaLaunchKernel"
) -> JudgedReport:
    """Steps of `LAYERS` layers: before each kernel the host works 25 us and launches for 5 us. It
    launches an addition before `phase`; `automatic` steps have no phase, and no addition."""

    def step(i: int) -> Iterator[Row]:
        start = 1_000 * US * i
        yield replace(
            tiny.opened(start, start + (1 if automatic else 999 * US), "step"),
            domain=AUTO_DOMAIN if automatic else None,
        )
        if not automatic:
            yield from added(start + US, 100 * i + 99)
            yield tiny.opened(start + 10 * US, start + 900 * US, phase)
        for k, name in enumerate(kernels * LAYERS):
            begin, number = start + (50 + 30 * k) * US, 100 * i + k + 1
            yield tiny.launch(begin, begin + 5 * US, number, name=call)
            yield named(tiny.kernel(begin + 7 * US, begin + 10 * US, number), name)

    return judged(*(row for i in range(8) for row in step(i)))


def added(begin: int, number: int) -> Iterator[Row]:
    yield tiny.launch(begin, begin + 5 * US, number)
    yield named(tiny.kernel(begin + 7 * US, begin + 10 * US, number), names.ADD)


@pytest.mark.parametrize("name", [FIRST, LAST])
def test_weight_norm_in_inference_is_named(name: str) -> None:
    found = asked(weight_norm, serving(names.PRODUCT, name, TRANSPOSED))
    assert found is not None
    assert found.title == "weight norm computes 3 weights again in each step"
    assert "remove_parametrizations" in found.change[0]
    assert (found.method, found.phase) == ("bound", "step/forward")
    assert left_of(found) == {name: 0.0}
    # of nine pieces of code the first is of the loop; three of the others go, with their launches
    assert found.changes is not None
    [(phase, factor)] = found.changes.faster_host
    assert phase == "step/forward"
    assert factor == pytest.approx(1 - 3 * (25 + 5) / (8 * 25))
    assert found.size_ns == 3 * (25 + 5 + 3) * US


@pytest.mark.parametrize("automatic", [False, True])
def test_code_before_a_phase_or_step_is_not_of_weight_norm(automatic: bool) -> None:
    found = asked(weight_norm, serving(FIRST, names.PRODUCT, automatic=automatic))
    assert found is not None
    assert found.changes is not None
    [(_, factor)] = found.changes.faster_host
    assert factor == pytest.approx(1 - 2 * (25 + 5) / (5 * 25))


def test_the_code_before_a_cuda_graph_stays() -> None:
    found = asked(weight_norm, serving(FIRST, names.PRODUCT, call="cudaGraphLaunch"))
    assert left_of(found) == {FIRST: 0.0}
    assert found is not None
    assert found.changes is not None
    assert found.changes.faster_host == ()


BACKWARD: Final = FIRST.replace("fwd", "bwd")


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(serving(FIRST, names.PRODUCT, BACKWARD), id="a backward kernel"),
        pytest.param(serving(FIRST, names.PRODUCT, "multi_tensor_apply_kernel"), id="an optimizer"),
        pytest.param(serving(FIRST, names.PRODUCT, phase="backward"), id="a backward pass"),
        pytest.param(serving(names.NORM, names.PRODUCT), id="another norm"),
        pytest.param(subject_of([(FIRST, 10), (names.PRODUCT, 10)]), id="no steps"),
    ],
)
def test_nothing_is_said_of_weight_norm(subject: JudgedReport) -> None:
    assert asked(weight_norm, subject) is None
