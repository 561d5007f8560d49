"""Batches arrive in order, in either buffer."""

import pytest
import torch

from nsysflow.workloads.overlap import POOL, Feed, InTurn, SideStream
from tests.workloads.toys import without_gpu


def first_elements(feed: Feed, batches: int) -> list[float]:
    """The first element of each batch, as work on the device sees it."""
    seen = []
    for index in range(batches):
        seen.append(feed.take(index).flatten()[0].clone())
        feed.give_back(index)
    return [one.item() for one in seen]


@pytest.fixture
def pool() -> torch.Tensor:
    return torch.arange(POOL).repeat_interleave(1 << 20).view(POOL, 1024, 1024).float()


def test_batches_arrive_in_order(pool: torch.Tensor) -> None:
    assert first_elements(InTurn(pool, "cpu"), 9) == [index % POOL for index in range(9)]


@pytest.mark.gpu
@without_gpu
def test_batches_arrive_in_order_on_a_side_stream(pool: torch.Tensor) -> None:
    pinned = pool.pin_memory()
    assert first_elements(SideStream(pinned), 50) == [index % POOL for index in range(50)]
