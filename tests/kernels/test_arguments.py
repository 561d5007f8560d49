"""Launchers refuse wrong arguments before they launch; their whole numbers agree with Triton's."""

import pytest
import torch
import triton
from torch import Tensor

from nsysflow.kernels.arguments import backend_for, cdiv, next_power_of_2, require, require_current


class OnAnotherGpu(Tensor):
    """A tensor that claims to be on a second GPU."""

    device = torch.device("cuda", 1)


def test_a_tensor_on_a_gpu_that_is_not_the_current_one_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    require_current("here", torch.device("cuda", 0))
    said = r"^x must be on the current GPU, cuda:0, but is on cuda:1"
    with pytest.raises(ValueError, match=said):
        require("x", torch.empty(3).as_subclass(OnAnotherGpu), (3,))


def test_auto_takes_triton_on_a_gpu_too() -> None:
    gpu = torch.device("cuda", 0)
    assert (backend_for("auto", gpu), backend_for("cuda", gpu)) == ("triton", "cuda")


def test_whole_numbers_for_launches_agree_with_triton() -> None:
    for by in (1, 3, 8):
        assert [cdiv(n, by) for n in range(30)] == [triton.cdiv(n, by) for n in range(30)]
    numbers = [*range(1, 70), 2**20 - 1, 2**20, 2**20 + 1]
    assert [next_power_of_2(n) for n in numbers] == [triton.next_power_of_2(n) for n in numbers]
    assert next_power_of_2(0) == 1
