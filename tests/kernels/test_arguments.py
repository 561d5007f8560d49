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
    with pytest.raises(
        ValueError, match=r"^x must be on the current GPU, cuda:0, but is on cuda:1"
    ):
        require("x", torch.empty(3).as_subclass(OnAnotherGpu), (3,))


def test_a_tensor_on_another_device_than_the_first_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^y must be on meta, but is on cpu"):
        require("y", torch.empty(3), (3,), device=torch.device("meta"))


def test_a_tensor_on_the_cpu_passes_without_asking_a_gpu() -> None:
    require_current("x", torch.device("cpu"))


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_auto_takes_triton_on_every_device(device: str) -> None:
    assert backend_for("auto", torch.device(device)) == "triton"


def test_backend_cuda_is_taken_on_a_gpu_and_refused_elsewhere() -> None:
    assert backend_for("cuda", torch.device("cuda", 0)) == "cuda"
    with pytest.raises(ValueError, match="backend cuda needs a CUDA device"):
        backend_for("cuda", torch.device("cpu"))


@pytest.mark.parametrize("by", [1, 3, 8])
def test_cdiv_agrees_with_triton(by: int) -> None:
    assert [cdiv(number, by) for number in range(30)] == [triton.cdiv(n, by) for n in range(30)]


def test_next_power_of_2_agrees_with_triton() -> None:
    numbers = [*range(1, 70), 2**20 - 1, 2**20, 2**20 + 1]
    assert [next_power_of_2(n) for n in numbers] == [triton.next_power_of_2(n) for n in numbers]
    assert next_power_of_2(0) == 1
