"""Kernels are tested on the GPU if there is one, else in Triton's interpreter on the CPU."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported


@pytest.fixture
def device() -> torch.device:
    """Where the tensors of a test live."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same random numbers in each run of a test."""
    torch.manual_seed(0)
