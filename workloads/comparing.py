"""Is a variant's result as right as PyTorch's own? Both are held to the same in float64."""

from dataclasses import dataclass
from typing import Final

from torch import Tensor

FACTOR: Final = 2.0
"""How much farther from float64 than plain PyTorch a result may be: roundings fall at other places,
and of few numbers, such as one loss, either may be closer by luck."""
BAND: Final = 1e-3
"""What is right in any case, whatever PyTorch's error: a quarter of bf16's last place."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A result and its distance from float64's, as root mean squares over that of the result.

    Attributes:
        what: it is.
        torch_error: of plain PyTorch in the same precision.
        error: of the variant.
        band: what passes, whatever PyTorch's error.
    """

    what: str
    torch_error: float
    error: float
    band: float = BAND

    @property
    def passed(self) -> bool:
        """Whether the variant is about as right; a NaN never is."""
        return self.error <= max(FACTOR * self.torch_error, self.band)


def distance(found: Tensor, exact: Tensor) -> float:
    """Root mean square of the difference, over that of `exact`."""
    exact = exact.double()
    off = (found.double() - exact).square().mean()
    return (off / exact.square().mean()).sqrt().item()
