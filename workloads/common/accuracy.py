"""How accurate a variant's result is: both it and plain PyTorch are compared with float64."""

from dataclasses import dataclass
from typing import Final

from torch import Tensor

FACTOR: Final = 2.0
"""A result may be this much farther from float64 than plain PyTorch's. Roundings fall in different
places, and for a few numbers, such as one loss, either may be closer by chance."""
BAND: Final = 1e-3
"""An error that always passes, whatever PyTorch's error is: a quarter of bf16's last digit."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The distances of two results from float64's: root mean squares relative to float64's.

    Attributes:
        what: the name of the result.
        torch_error: the distance of plain PyTorch in the same precision.
        error: the distance of the variant.
        band: an error that passes whatever PyTorch's error is.
    """

    what: str
    torch_error: float
    error: float
    band: float = BAND

    @property
    def passed(self) -> bool:
        """Whether the variant is about as accurate as PyTorch. A NaN never passes."""
        return self.error <= max(FACTOR * self.torch_error, self.band)


def distance(result: Tensor, exact: Tensor) -> float:
    """Root mean square of the difference, divided by that of `exact`."""
    exact = exact.double()
    off = (result.double() - exact).square().mean()
    return (off / exact.square().mean()).sqrt().item()
