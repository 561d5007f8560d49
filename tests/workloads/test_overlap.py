"""Batches arrive in order, whichever buffer they come in."""

import pytest
import torch

from nsysflow.workloads.overlap import POOL, Ahead, Feed, InTurn
from tests.workloads.running import without_gpu


def first_elements(feed: Feed, batches: int) -> list[float]:
    """Of each batch, as work on the device sees it."""
    seen = []
    for index in range(batches):
        seen.append(feed.take(index).flatten()[0].clone())
        feed.give_back(index)
    return [one.item() for one in seen]


@pytest.fixture
def pool() -> torch.Tensor:
    return torch.arange(POOL).repeat_interleave(1 << 20).view(POOL, 1024, 1024).float()


def test_each_batch_is_that_of_its_number(pool: torch.Tensor) -> None:
    assert first_elements(InTurn(pool, "cpu"), 9) == [index % POOL for index in range(9)]


@pytest.mark.gpu
@without_gpu
def test_each_batch_is_that_of_its_number_on_a_stream_of_its_own(pool: torch.Tensor) -> None:
    pinned = pool.pin_memory()
    assert first_elements(Ahead(pinned), 50) == [index % POOL for index in range(50)]
