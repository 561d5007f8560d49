"""What the backward pass computes gradients of, as flows of a trace tie it (spec §17.14)."""

from pathlib import Path
from typing import Any, Final

import pytest

from nsysflow.analysis.load import load
from tests.analysis.load.kineto.traces import (
    PID,
    SIZES,
    agreed,
    call,
    event,
    function,
    kernel,
    write,
)

AUTOGRAD: Final = 900
EVALUATES: Final = "autograd::engine::evaluate_function: MmBackward0"


def flow(side: str, ts: object, tid: object, **more: object) -> dict[str, Any]:
    """One end of a flow: `s` at the operator of the forward pass, `f` at that of the backward."""
    of = {"ph": side, "cat": "fwdbwd", "name": "fwdbwd", "pid": PID, "tid": tid}
    return {**of, "ts": ts, "id": 1, **more}


def of_backward(name: str, ts: int, dur: int) -> dict[str, Any]:
    return event("cpu_op", name, ts, dur, tid=AUTOGRAD)


FORWARD: Final = (
    *(function("train.py(1): train", 0, 90), function("model.py(42): forward", 1, 9)),
    event("cpu_op", "aten::mm", 2, 5),
    *(call(4, 1), kernel(5, 2, correlation=1, **SIZES)),
)
BACKWARD: Final = (
    *(of_backward(EVALUATES, 20, 30), of_backward("MmBackward0", 21, 9)),
    *(call(22, 2, tid=AUTOGRAD), kernel(23, 2, correlation=2, **SIZES)),  # the product
    *(call(40, 3, tid=AUTOGRAD), kernel(41, 2, correlation=3, **SIZES)),  # the sum of two gradients
    of_backward("torch::autograd::AccumulateGrad", 60, 9),
    *(call(62, 4, tid=AUTOGRAD), kernel(63, 2, correlation=4, **SIZES)),
    {
        "ph": "M",
        "name": "thread_name",
        "pid": PID,
        "tid": AUTOGRAD,
        "args": {"name": "pt_autograd_0"},
    },
)
TIE: Final = (flow("f", 21, AUTOGRAD), flow("s", 2, PID))


def test_kernels_of_the_backward_pass_have_the_line_of_the_forward_pass(tmp_path: Path) -> None:
    trace = load(write(tmp_path, *FORWARD, *BACKWARD, *TIE))
    assert trace.gradients.select("start_ns", "end_ns").rows() == [(20_000, 50_000)]
    rows = agreed(trace).code.sort("kernels", "backward")
    assert rows.select("source", "waits", "backward", "kernels").rows() == [
        ("model.py:42 in forward", False, False, 1),
        ("train.py:1 in train", True, False, 1),
        ("model.py:42 in forward", False, True, 2),
    ]


def test_without_an_evaluation_around_it_an_operator_counts_while_it_runs(tmp_path: Path) -> None:
    later = [{**one, "ts": 22} if one["name"] == EVALUATES else one for one in BACKWARD]
    gradients = load(write(tmp_path, *FORWARD, *later, *TIE)).gradients
    assert gradients.select("start_ns", "end_ns").rows() == [(21_000, 30_000)]


@pytest.mark.parametrize(
    "odd",
    [
        {"id": None},
        {"id": [1]},
        {"id": 2},
        {"ts": "soon"},
        {"ts": 3},  # no operator begins then
        {"tid": None},
        {"tid": 77},
        {"ph": "t"},
    ],
)
@pytest.mark.parametrize("side", [0, 1])
def test_a_flow_that_ties_nothing_is_passed_over(
    tmp_path: Path, odd: dict[str, object], side: int
) -> None:
    ends = [*TIE]
    ends[side] = {**ends[side], **odd}
    trace = load(write(tmp_path, *FORWARD, *BACKWARD, *ends))
    assert trace.gradients.is_empty()
    assert trace.notes == load(write(tmp_path, *FORWARD, *BACKWARD)).notes
    assert not agreed(trace).code["backward"].any()
