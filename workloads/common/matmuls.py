"""Long kernels: repeated matrix products."""

from typing import Any

import torch

from nsysflow.workloads.common.config import Config


class Matmuls:
    """The same matrix product, repeated into the same output.

    Attributes:
        out: the product (size, size). Its elements have variance 1.
    """

    def __init__(self, config: Config[Any], size: int) -> None:
        self._left = torch.randn(size, size, **config.placed)
        self._right = torch.randn(size, size, **config.placed) / size**0.5
        self.out = torch.zeros_like(self._left)

    def launch(self, times: int) -> None:
        """Multiply `times` times, with one or two kernels each."""
        for _ in range(times):
            torch.mm(self._left, self._right, out=self.out)
