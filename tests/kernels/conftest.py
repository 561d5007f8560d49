"""Kernels are tested on the GPU if there is one, else in Triton's interpreter on the CPU."""

import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported


@pytest.fixture
def device() -> torch.device:
    """Where the tensors of a test live."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kernel forgets to write is NaN, or a number that it never writes."""
    for of, name in ((torch, "empty"), (torch, "empty_like"), (Tensor, "new_empty")):
        monkeypatch.setattr(of, name, _poisoning(getattr(of, name)))


def _poisoning(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def poisoned(*args: object, **options: object) -> Tensor:
        tensor = make(*args, **options)
        return tensor.fill_(torch.nan if tensor.is_floating_point() else -7)

    return poisoned


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same random numbers in each run of a test."""
    torch.manual_seed(0)
