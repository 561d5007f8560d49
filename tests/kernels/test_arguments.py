"""What every launcher refuses before it launches."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from nsysflow.kernels.arguments import backend_for, require, require_current


def test_a_tensor_on_a_gpu_that_is_not_the_current_one_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    with FakeTensorMode():
        here, there = (torch.empty(3, device=f"cuda:{number}") for number in (0, 1))
    require("here", here, (3,))
    with pytest.raises(
        ValueError, match=r"^x must be on the current GPU, cuda:0, and is on cuda:1"
    ):
        require("x", there, (3,))


def test_tensors_that_must_be_where_the_first_is_are_held_to_that() -> None:
    with pytest.raises(ValueError, match=r"^y must be on meta, and is on cpu"):
        require("y", torch.empty(3), (3,), device=torch.device("meta"))


def test_no_gpu_is_asked_about_a_tensor_on_none() -> None:
    require_current("x", torch.device("cpu"))


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_auto_takes_triton_wherever_it_runs(device: str) -> None:
    assert backend_for("auto", torch.device(device)) == "triton"


def test_cuda_is_taken_when_asked_for_and_refused_without_a_gpu() -> None:
    assert backend_for("cuda", torch.device("cuda", 0)) == "cuda"
    with pytest.raises(ValueError, match="backend cuda needs a CUDA device"):
        backend_for("cuda", torch.device("cpu"))
