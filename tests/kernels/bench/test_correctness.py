"""Wrong results are called wrong."""

from collections.abc import Callable

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nsysflow.kernels.bench.correctness import ROUNDING, TRUNCATION, Correctness, check, compared
from nsysflow.kernels.bench.problem import Cost, Outputs, Problem, Tolerance

LOOSE = Tolerance(relative=0.1, absolute=0.0)
EXACT = Tolerance(relative=0.0, absolute=0.0)
RIGHT = torch.arange(1.0, 5.0) * 2


def checked(
    call: Callable[[], Outputs], *, poison: tuple[Tensor, ...] = (), corrupt: bool = False
) -> Correctness:
    """A kernel that should double the numbers from 1 to 4."""
    problem = Problem(
        inputs=(torch.arange(1.0, 5.0),),
        reference=lambda x: (2 * x,),
        kernels={},
        tolerance=LOOSE,
        cost={"fwd": Cost(bytes=32, flops=4)},
        poison=poison,
    )
    return check(problem, "fwd", call, ours=True, interpreted=True, corrupt=corrupt)


@given(st.floats(-1, 1))
def test_a_result_is_correct_up_to_the_tolerance_and_wrong_beyond(off: float) -> None:
    wanted = torch.tensor([8.0], dtype=torch.float64)
    found = compared([wanted * (1 + off)], [wanted], LOOSE, ROUNDING)
    assert (found.problem is None) == (found.error <= 1)
    assert abs(found.error - abs(off) / 0.1) < 1e-9


def test_nan_infinity_and_another_shape_are_wrong() -> None:
    right = torch.ones(4)
    for found in (right * torch.nan, right * torch.inf, right[:3], right[None]):
        assert compared([found], [right], LOOSE, ROUNDING).problem
    assert compared([], [right], LOOSE, ROUNDING).problem


def test_bf16_results_can_be_rounded_once() -> None:
    wanted = torch.rand(1000, dtype=torch.float64) + 1
    found = wanted.bfloat16()
    assert compared([found], [wanted], EXACT, ROUNDING).problem is None
    assert compared([found.float()], [wanted], EXACT, ROUNDING).problem
    assert compared([found * 1.01], [wanted], EXACT, TRUNCATION).problem


def test_a_corrupted_element_is_noticed() -> None:
    assert checked(lambda: (RIGHT,)).error == 0
    assert checked(lambda: (RIGHT,), corrupt=True).error > 1


def test_elements_that_a_kernel_does_not_write_are_noticed() -> None:
    torch.empty(4).copy_(RIGHT)  # freed memory may contain the correct result

    def half() -> Outputs:
        out = torch.empty(4)
        out[:2] = RIGHT[:2]
        return (out,)

    assert checked(half).problem
    assert not torch.are_deterministic_algorithms_enabled()


def test_memory_allocated_before_the_call_is_filled_with_nan_too() -> None:
    out = RIGHT.clone()
    assert checked(lambda: (out,), poison=(out,)).problem
