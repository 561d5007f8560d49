"""Problems of the benchmark: what to compute, how accurate it must be, and what to call."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, cast

import torch
from torch import Tensor
from torch._functorch import config as functorch_config

from nsysflow.base.peaks import Unit
from nsysflow.catalog.catalog import Kernel, dtypes, variants

Direction = Literal["fwd", "bwd", "fwd+bwd"]
Backend = Literal["triton", "cuda"]
Shape = Mapping[str, int]
Outputs = tuple[Tensor, ...]

DTYPES: Final[Mapping[str, torch.dtype]] = {
    name: getattr(torch, torch_name) for name, torch_name in dtypes().items()
}


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How far a result may be from the exact x: relative·|x| + absolute·(rms of the tensor).

    The second part is for cancellation: elements near zero among larger ones.
    """

    relative: float
    absolute: float


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The bytes and operations that one call needs."""

    bytes: int
    flops: int
    """Additions, multiplications, comparisons and special functions of the equation, one each."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Inputs of one shape and dtype, with the functions that compute on them.

    Attributes:
        inputs: the arguments of the reference and the kernels.
        reference: plain PyTorch; float64 inputs give float64 outputs.
        kernels: the same, fused, by backend.
        wanted: the positions of the inputs that have gradients.
        slopes: the gradients of the differentiable outputs, for the backward direction.
        tolerance: without the rounding to the output's own dtype, which `correctness` adds.
        cost: the cost of each direction.
        unit: the arithmetic of most of the operations.
        expected: computes the exact outputs from the outputs found, for results that the reference
            cannot predict, such as random draws.
        poison: tensors to fill with NaN before the check, so that unwritten elements show.
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
class Benchmark:
    """How a kernel is benchmarked.

    Attributes:
        make: makes a problem of a shape and dtype; it gets the same random numbers each time.
        shape: the usual sizes, by symbol.
        toy: sizes for Triton's interpreter.
        swept: groups of symbols that vary together in a sweep.
        directions: the directions that are measured.
    """

    make: "Callable[[Shape, Random], Problem]"
    shape: Shape
    toy: Shape
    swept: tuple[tuple[str, ...], ...]
    directions: tuple[Direction, ...] = ("fwd",)


def shapes_of(benchmark: Benchmark, *, sweep: bool) -> list[Shape]:
    """The usual shape; in a sweep, each group of symbols also at a quarter and four times."""
    usual = benchmark.shape
    shapes = [usual]
    for symbols in benchmark.swept if sweep else ():
        shapes.append({**usual, **{name: usual[name] // 4 for name in symbols}})
        shapes.append({**usual, **{name: usual[name] * 4 for name in symbols}})
    return shapes


@dataclass(kw_only=True)
class Random:
    """Random tensors of one dtype; the same in each run."""

    device: torch.device
    dtype: torch.dtype
    seed: int = 0
    generator: torch.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.generator = torch.Generator(self.device).manual_seed(self.seed)

    def normal(self, *shape: int, scale: float = 1.0, mean: float = 0.0) -> Tensor:
        """Normally distributed, with mean `mean` and standard deviation `scale`."""
        drawn = torch.randn(shape, generator=self.generator, device=self.device)
        return drawn.mul_(scale).add_(mean).to(self.dtype)

    def ones_with_chance(self, chance: float, *shape: int) -> Tensor:
        """1 with probability `chance`, else 0."""
        drawn = torch.rand(shape, generator=self.generator, device=self.device)
        return (drawn < chance).to(self.dtype)

    def below(self, limit: int, *shape: int) -> Tensor:
        """Whole numbers from 0 to `limit` - 1, int64."""
        return torch.randint(limit, shape, generator=self.generator, device=self.device)


Variant = Literal["ref", "compile", "compile-max", "triton", "cuda"]
BACKENDS: Final = ("triton", "cuda")
"""The variants that are our own kernels."""

MODES: Final = {"compile": None, "compile-max": "max-autotune-no-cudagraphs"}
"""Without torch's own CUDA graphs: the benchmark captures all variants in the same way."""


def variants_of(kernel: Kernel, *, on_gpu: bool) -> tuple[Variant, ...]:
    """The variants that can run: without a GPU the reference, and Triton in its interpreter."""
    runnable = variants() if on_gpu else ("ref", "triton")
    return cast(
        tuple[Variant, ...], tuple(variant for variant in runnable if variant in kernel.variants)
    )


def forget_compiled(variant: Variant) -> None:
    """Drop what torch.compile has compiled so far, before the next case.

    Compilations for the shapes of earlier cases would count towards the limit beyond which torch
    falls back to eager mode.
    """
    if variant in MODES:
        torch.compiler.reset()


def function_of(problem: Problem, variant: Variant) -> Callable[..., Outputs]:
    """The function that computes the outputs from the inputs."""
    if variant == "ref":
        return problem.reference
    if variant == "triton" or variant == "cuda":
        return problem.kernels[variant]
    # backward may write to donated buffers, but here it is called more than once
    functorch_config.donated_buffer = False
    compiled: Callable[..., Outputs] = torch.compile(
        problem.reference, fullgraph=True, dynamic=False, mode=MODES[variant]
    )
    return compiled


def call_of(
    problem: Problem, function: Callable[..., Outputs], direction: Direction
) -> Callable[[], Outputs]:
    """The call to measure: forward without gradients, backward after one forward, or both."""
    if direction == "fwd":

        def forward() -> Outputs:
            with torch.no_grad():
                return function(*problem.inputs)

        return forward

    leaves = [problem.inputs[place].requires_grad_() for place in problem.wanted]
    if direction == "bwd":
        outputs = function(*problem.inputs)
        return lambda: torch.autograd.grad(outputs, leaves, problem.slopes, retain_graph=True)

    def both() -> Outputs:
        outputs = function(*problem.inputs)
        return (*outputs, *torch.autograd.grad(outputs, leaves, problem.slopes))

    return both


def exact(problem: Problem, direction: Direction) -> Outputs:
    """The exact outputs: the reference in float64."""
    wide = replace(
        problem,
        inputs=tuple(_widened(tensor.detach()) for tensor in problem.inputs),
        slopes=tuple(_widened(tensor) for tensor in problem.slopes),
    )
    return tuple(tensor.detach() for tensor in call_of(wide, wide.reference, direction)())


def _widened(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor
