"""Long kernels: the work of the controls."""

from typing import Any

import torch

from nsysflow.workloads.config import Config


class Matmuls:
    """The same product again and again, into the same matrix.

    Attributes:
        out: the product (size, size), its elements of variance 1.
    """

    def __init__(self, config: Config[Any], size: int) -> None:
        self._left = torch.randn(size, size, **config.placed)
        self._right = torch.randn(size, size, **config.placed) / size**0.5
        self.out = torch.zeros_like(self._left)

    def launch(self, times: int) -> None:
        """Multiply so many times, a kernel or two each."""
        for _ in range(times):
            torch.mm(self._left, self._right, out=self.out)
