"""Emptying the cache allocates in every step; keeping it allocates in none."""

import pytest
import torch

from nsysflow.catalog.catalog import find
from nsysflow.workloads.alloc_churn import alloc_churn
from tests.workloads.toys import toy, without_gpu

WARM = 5


def allocations(variant: str, steps: int) -> int:
    """How often PyTorch asks the driver for memory, after the steps that precede a capture.

    It asks in the first few steps (3 times after the first one, H200, 2026-11-20).
    """
    # activations above 10 MiB get their own segments
    config = toy(find("alloc_churn"), variant, on="cuda", options={"batch": 4096, "width": 2048})
    work = alloc_churn(config)
    for index in range(WARM):
        work.step(index)
    before = torch.cuda.memory_stats()["num_device_alloc"]
    for index in range(WARM, WARM + steps):
        work.step(index)
    return int(torch.cuda.memory_stats()["num_device_alloc"] - before)


@pytest.mark.gpu
@without_gpu
def test_the_driver_is_asked_in_every_step_or_never() -> None:
    assert allocations("empty_cache", 4) >= 4
    assert allocations("cached", 4) == 0
