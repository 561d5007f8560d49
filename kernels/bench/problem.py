"""What there is to compute, and how right it must be."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import torch
from torch import Tensor

from nsysflow.peaks import Unit

Direction = Literal["fwd", "bwd", "fwd+bwd"]
Backend = Literal["triton", "cuda"]
Shape = Mapping[str, int]
Outputs = tuple[Tensor, ...]

DTYPES: Final = {"bf16": torch.bfloat16, "float": torch.float32}


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How far a result may be from the exact one, x: relative·|x| + absolute·(rms of the tensor).

    The second part is for what cancels: elements near zero among larger ones.
    """

    relative: float
    absolute: float


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one call must move and compute."""

    bytes: int
    flops: int
    """Additions, multiplications, comparisons and special functions of the equation, one each."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Inputs of one shape and dtype, and what can be done with them.

    Attributes:
        inputs: what the reference and the kernels are called with.
        reference: plain PyTorch; float64 inputs give float64 outputs.
        kernels: the same, fused, by backend.
        wanted: which inputs have gradients, by place.
        slopes: the gradients of the outputs that have one, for the backward direction.
        tolerance: before the rounding of an output's own dtype, which `judging` adds.
        cost: by direction.
        unit: which arithmetic does the most of `flops`.
        expected: the exact outputs, given those that were found, where the reference on float64
            inputs does not say it (draws, say).
        poison: written before the check: what a kernel forgets to write is NaN.
    """

    inputs: tuple[Tensor, ...]
    reference: Callable[..., Outputs]
    kernels: Mapping[Backend, Callable[..., Outputs]]
    tolerance: Tolerance
    cost: Mapping[Direction, Cost]
    wanted: tuple[int, ...] = ()
    slopes: Outputs = ()
    unit: Unit = "float32"
    expected: Callable[[Outputs], Outputs] | None = None
    poison: tuple[Tensor, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel of the benchmark.

    Attributes:
        make: a problem of a shape and dtype; called with the same random numbers each time.
        shape: the usual sizes, by symbol.
        toy: sizes for Triton's interpreter.
        swept: symbols that go up and down together in a sweep.
        compiles: whether torch.compile is tried on the reference.
    """

    make: "Callable[[Shape, Random], Problem]"
    shape: Shape
    toy: Shape
    swept: tuple[tuple[str, ...], ...]
    backends: tuple[Backend, ...] = ("triton",)
    directions: tuple[Direction, ...] = ("fwd",)
    dtypes: tuple[str, ...] = tuple(DTYPES)
    compiles: bool = True


def shapes_of(kernel: Kernel, *, sweep: bool) -> list[Shape]:
    """The usual shape; in a sweep, each group of symbols also at a quarter and at four times."""
    shapes = [kernel.shape]
    for symbols in kernel.swept if sweep else ():
        shapes.append({**kernel.shape, **{name: kernel.shape[name] // 4 for name in symbols}})
        shapes.append({**kernel.shape, **{name: kernel.shape[name] * 4 for name in symbols}})
    return shapes


@dataclass(frozen=True, kw_only=True)
class Random:
    """Random tensors of one dtype, the same in each run."""

    device: torch.device
    dtype: torch.dtype
    seed: int = 0
    generator: torch.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        generator = torch.Generator(self.device).manual_seed(self.seed)
        object.__setattr__(self, "generator", generator)

    def normal(self, *shape: int, scale: float = 1.0, mean: float = 0.0) -> Tensor:
        """Of mean `mean` and deviation `scale`."""
        drawn = torch.randn(shape, generator=self.generator, device=self.device)
        return drawn.mul_(scale).add_(mean).to(self.dtype)

    def ones_with_chance(self, chance: float, *shape: int) -> Tensor:
        """1 with a chance, else 0."""
        drawn = torch.rand(shape, generator=self.generator, device=self.device)
        return (drawn < chance).to(self.dtype)

    def below(self, limit: int, *shape: int) -> Tensor:
        """Whole numbers from 0 to `limit` - 1, int64."""
        return torch.randint(limit, shape, generator=self.generator, device=self.device)
