"""What is wrong is called wrong."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nsysflow.kernels.bench.judging import CUT, ROUNDING, compared, corrupted, judge
from nsysflow.kernels.bench.problem import Cost, Outputs, Problem, Tolerance

LOOSE = Tolerance(relative=0.1, absolute=0.0)
EXACT = Tolerance(relative=0.0, absolute=0.0)


def problem(kernel: Tensor) -> Problem:
    """Doubling, by a kernel that always gives the same."""
    return Problem(
        inputs=(torch.arange(1.0, 5.0),),
        reference=lambda x: (2 * x,),
        kernels={"triton": lambda _: (kernel,)},
        tolerance=LOOSE,
        cost={"fwd": Cost(bytes=32, flops=4)},
    )


@given(st.floats(-1, 1))
def test_a_result_is_right_up_to_the_tolerance_and_no_further(off: float) -> None:
    wanted = torch.tensor([8.0], dtype=torch.float64)
    judged = compared([wanted * (1 + off)], [wanted], LOOSE, ROUNDING)
    assert (judged.problem is None) == (judged.error <= 1)
    assert abs(judged.error - abs(off) / 0.1) < 1e-9


def test_the_absolute_part_is_of_the_tensors_size() -> None:
    tolerance = Tolerance(relative=0.0, absolute=0.01)
    wanted = torch.tensor([100.0, -100.0])
    assert compared([wanted + 0.5], [wanted], tolerance, ROUNDING).error == 0.5
    assert compared([wanted / 100 + 0.5], [wanted / 100], tolerance, ROUNDING).error == 50


def test_nan_infinity_and_another_shape_are_wrong() -> None:
    right = torch.ones(4)
    for found in (right * torch.nan, right * torch.inf, right[:3], right[None]):
        assert compared([found], [right], LOOSE, ROUNDING).problem
    assert compared([], [right], LOOSE, ROUNDING).problem


def test_bf16_may_be_rounded_once() -> None:
    wanted = torch.rand(1000, dtype=torch.float64) + 1
    found = wanted.bfloat16()
    assert compared([found], [wanted], EXACT, ROUNDING).problem is None
    assert compared([found.float()], [wanted], EXACT, ROUNDING).problem
    assert compared([found * 1.01], [wanted], EXACT, CUT).problem


def test_the_worst_output_is_named() -> None:
    right = torch.ones(3)
    judged = compared([right, right * 2, right * 1.5], [right] * 3, LOOSE, ROUNDING)
    assert judged.problem == "output 1 is off by 10 times what is allowed"


def judged_error(kernel: Outputs, *, corrupt: bool = False) -> float:
    made = problem(kernel[0])
    call = made.kernels["triton"]
    judged = judge(
        made, "fwd", lambda: call(*made.inputs), ours=True, interpreted=True, corrupt=corrupt
    )
    return judged.error


def test_a_spoiled_element_is_noticed() -> None:
    right = torch.arange(1.0, 5.0) * 2
    assert judged_error((right,)) == 0
    assert judged_error((right,), corrupt=True) > 1


def test_spoiling_changes_one_element_of_floats_of_a_copy() -> None:
    rows, values = torch.arange(3), torch.zeros(2, 3).t()
    spoiled = corrupted((rows, values))
    assert spoiled[0] is rows
    assert (spoiled[1] != values).sum() == 1
    assert not values.any()


def test_what_a_kernel_does_not_write_is_nan() -> None:
    made = problem(torch.empty(0))
    right = torch.arange(1.0, 5.0) * 2
    torch.empty(4).copy_(right)  # what lies in memory may well be the right result

    def half() -> Outputs:
        out = torch.empty(4)
        out[:2] = right[:2]
        return (out,)

    assert judge(made, "fwd", half, ours=True, interpreted=True).problem
    assert not torch.are_deterministic_algorithms_enabled()


def test_memory_that_was_there_before_is_poisoned_too() -> None:
    out = torch.arange(1.0, 5.0) * 2
    made = Problem(
        inputs=(torch.arange(1.0, 5.0),),
        reference=lambda x: (2 * x,),
        kernels={"triton": lambda _: (out,)},
        tolerance=LOOSE,
        cost={"fwd": Cost(bytes=32, flops=4)},
        poison=(out,),
    )
    assert judge(made, "fwd", lambda: (out,), ours=True, interpreted=True).problem
