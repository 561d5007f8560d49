"""The integer functions agree with Triton's."""

import pytest
import triton

from nsysflow.kernels.integers import cdiv, next_power_of_2


@pytest.mark.parametrize("by", [1, 3, 8])
def test_cdiv_agrees_with_triton(by: int) -> None:
    assert [cdiv(number, by) for number in range(30)] == [triton.cdiv(n, by) for n in range(30)]


def test_next_power_of_2_agrees_with_triton() -> None:
    numbers = [*range(1, 70), 2**20 - 1, 2**20, 2**20 + 1]
    assert [next_power_of_2(n) for n in numbers] == [triton.next_power_of_2(n) for n in numbers]
    assert next_power_of_2(0) == 1
