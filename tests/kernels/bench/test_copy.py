"""The copy that measures the bandwidth copies everything and nothing else."""

import pytest
import torch

from nsysflow.kernels.bench.copy import copy


@pytest.mark.parametrize("numel", [0, 1, 4095, 4097])
def test_any_number_of_elements_is_copied(numel: int, device: torch.device) -> None:
    x = torch.randn(numel, device=device)
    longer = torch.full((numel + 4096,), torch.nan, device=device)
    assert torch.equal(copy(x, out=longer[:numel]), x)
    assert longer[numel:].isnan().all()
