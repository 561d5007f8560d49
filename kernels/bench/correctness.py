"""Whether a result is correct: compared with the exact result, within a tolerance."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from nsysflow.kernels.bench.problem import Direction, Outputs, Problem, Tolerance, exact

ROUNDING: Final = {torch.bfloat16: 2**-8, torch.float16: 2**-11}
"""The relative error allowed for the last rounding of a result."""

TRUNCATION: Final = {torch.bfloat16: 2**-7, torch.float16: 2**-10}
"""The same for Triton's interpreter, which truncates where a GPU rounds."""


@dataclass(frozen=True, kw_only=True)
class Correctness:
    """How a result compares with the exact one.

    Attributes:
        error: the error of the worst element as a fraction of its tolerance; infinite if a result
            is NaN or has another shape.
        problem: what is wrong, in words; None if the result is correct.
    """

    error: float
    problem: str | None = None


def check(
    problem: Problem,
    direction: Direction,
    call: Callable[[], Outputs],
    *,
    ours: bool,
    interpreted: bool,
    corrupt: bool = False,
) -> Correctness:
    """Call once and compare the outputs with the exact ones.

    Args:
        problem: the problem.
        direction: the direction that `call` computes.
        call: returns the outputs.
        ours: whether to fill new memory with NaN. It would make torch.compile recompile.
        interpreted: whether Triton's interpreter does the rounding.
        corrupt: corrupt one element of the result first, to test this check.
    """
    for tensor in problem.poison:
        tensor.fill_(torch.nan)
    with new_memory_is_nan() if ours else nullcontext():
        outputs = tuple(tensor.detach() for tensor in call())
    if corrupt:
        outputs = corrupted(outputs)
    wanted = problem.expected(outputs) if problem.expected else exact(problem, direction)
    return compared(outputs, wanted, problem.tolerance, TRUNCATION if interpreted else ROUNDING)


@contextmanager
def new_memory_is_nan() -> Iterator[None]:
    """Fill memory allocated inside the context with NaN, so that unwritten elements show."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)  # makes torch.empty fill memory
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def compared(
    outputs: Sequence[Tensor],
    wanted: Sequence[Tensor],
    tolerance: Tolerance,
    rounding: dict[torch.dtype, float],
) -> Correctness:
    """How the worst of all outputs compares with the exact one."""
    if len(outputs) != len(wanted):
        return Correctness(
            error=torch.inf, problem=f"there are {len(outputs)} outputs instead of {len(wanted)}"
        )
    worst = Correctness(error=0.0)
    for number, (given, right) in enumerate(zip(outputs, wanted, strict=True)):
        if given.shape != right.shape:
            shapes = f"{tuple(given.shape)} instead of {tuple(right.shape)}"
            return Correctness(error=torch.inf, problem=f"output {number} is {shapes}")
        relative = tolerance.relative + rounding.get(given.dtype, 0.0)
        error = _error(given.double(), right.double(), relative, tolerance.absolute)
        if error > worst.error:
            worst = Correctness(error=error)
            if error > 1:
                times = f"output {number} is off by {error:.3g} times the tolerance"
                worst = Correctness(error=error, problem=times)
    return worst


def _error(result: Tensor, wanted: Tensor, relative: float, absolute: float) -> float:
    """The largest |found - wanted| as a fraction of the tolerance."""
    if wanted.numel() == 0 or torch.equal(result, wanted):
        return 0.0
    allowed = relative * wanted.abs() + absolute * wanted.square().mean().sqrt()
    share = (result - wanted).abs() / allowed
    share = torch.where(result == wanted, 0.0, share)  # 0 / 0 for a tolerance of 0
    return share.nan_to_num(nan=torch.inf, posinf=torch.inf).max().item()


def corrupted(outputs: Outputs) -> Outputs:
    """The outputs with a wrong middle element in the first output of floats."""
    changed = list(outputs)
    for number, tensor in enumerate(outputs):
        if tensor.is_floating_point() and tensor.numel() > 0:
            wrong = tensor.clone(memory_format=torch.contiguous_format)
            flat = wrong.view(-1)
            flat[flat.numel() // 2] += 1 + flat.abs().max()
            changed[number] = wrong
            return tuple(changed)
    return outputs
