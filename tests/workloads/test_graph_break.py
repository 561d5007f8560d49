"""Reading a value from the GPU ends torch.compile's graph; a factor does not, with one result."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nsysflow.workloads.graph_break import LIMIT, limited_by_factor, limited_if_large


class Graphs:
    """A compiler that only counts its graphs."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, graph: torch.fx.GraphModule, _inputs: list[Tensor]) -> torch.fx.GraphModule:
        self.count += 1
        return graph


@pytest.mark.slow
@pytest.mark.parametrize("large", [False, True])
def test_reading_a_value_splits_a_layer_into_two_graphs_and_a_factor_does_not(large: bool) -> None:
    rows = torch.full((2, 4), 10 * LIMIT if large else 0.1 * LIMIT)
    for layer, expected in ((limited_if_large, 1 + large), (limited_by_factor, 1)):
        torch.compiler.reset()
        graphs = Graphs()
        torch.compile(layer, backend=graphs)(rows)
        assert graphs.count == expected, layer.__name__


@given(scale=st.floats(0, 1e6), seed=st.integers(0, 99))
def test_both_ways_agree_and_no_magnitude_exceeds_the_limit(scale: float, seed: int) -> None:
    rows = scale * torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))
    asked, computed = limited_if_large(rows), limited_by_factor(rows)
    assert torch.equal(asked, computed)
    # the factor and the product are each rounded by at most 2**-24
    assert asked.abs().amax() <= LIMIT * (1 + 2**-22)
