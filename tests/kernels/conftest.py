"""Kernels are tested on the GPU if there is one, else in Triton's interpreter on the CPU."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.interpreter import interpret_without_gpu

interpret_without_gpu()


@pytest.fixture
def device() -> torch.device:
    """The device of a test's tensors."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill new memory with NaN or -7, so that elements which a kernel does not write show."""
    for of, name in ((torch, "empty"), (torch, "empty_like"), (Tensor, "new_empty")):
        monkeypatch.setattr(of, name, _poisoning(getattr(of, name)))


def _poisoning(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def poisoned(*args: object, **options: object) -> Tensor:
        tensor = make(*args, **options)
        return tensor.fill_(torch.nan if tensor.is_floating_point() else -7)

    return poisoned


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Use the same random numbers in each run of a test."""
    torch.manual_seed(0)
