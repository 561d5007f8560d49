"""The graph of `rolloutcopy` makes the same minibatches as its launches."""

import pytest
import torch

from nsysflow.catalog.catalog import find
from nsysflow.workloads.rolloutcopy import rolloutcopy
from tests.workloads.toys import toy, without_gpu


@pytest.mark.gpu
@without_gpu
def test_minibatches_of_a_graph_equal_fused_ones() -> None:
    results = []
    for variant in ("fused", "graph"):
        torch.manual_seed(0)
        work = rolloutcopy(toy(find("rolloutcopy"), variant, on="cuda"))
        for index in range(3):
            work.step(index)
        results.append(work.result().clone())
    assert torch.equal(*results)
