"""Is a result right?"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from nsysflow.kernels.bench.calls import exact
from nsysflow.kernels.bench.problem import Direction, Outputs, Problem, Tolerance

ROUNDING: Final = {torch.bfloat16: 2**-8, torch.float16: 2**-11}
"""What the last rounding of a result may cost, relative to it."""

CUT: Final = {torch.bfloat16: 2**-7, torch.float16: 2**-10}
"""The same in Triton's interpreter, which cuts bf16 where a GPU rounds."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """How a result compares with the exact one.

    Attributes:
        error: the worst element's, as a share of what the tolerance allows it; infinite where a
            result is NaN or of another shape.
        problem: what is wrong, in words; None when nothing is.
    """

    error: float
    problem: str | None = None


def judge(
    problem: Problem,
    direction: Direction,
    call: Callable[[], Outputs],
    *,
    ours: bool,
    interpreted: bool,
    corrupt: bool = False,
) -> Judged:
    """Call it once and compare what it gives with the exact outputs.

    Args:
        ours: whether to poison new memory. torch.compile would compile anew for that.
        interpreted: whether Triton's interpreter rounds.
        corrupt: spoil an element of the result first, to see that it is noticed.
    """
    for tensor in problem.poison:
        tensor.fill_(torch.nan)
    with new_memory_is_nan() if ours else nullcontext():
        found = tuple(each.detach() for each in call())
    if corrupt:
        found = corrupted(found)
    wanted = problem.expected(found) if problem.expected else exact(problem, direction)
    return compared(found, wanted, problem.tolerance, CUT if interpreted else ROUNDING)


@contextmanager
def new_memory_is_nan() -> Iterator[None]:
    """What is allocated in here holds NaN until it is written, and not what was there before."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)  # fills what torch.empty gives
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def compared(
    found: Sequence[Tensor],
    wanted: Sequence[Tensor],
    tolerance: Tolerance,
    rounding: dict[torch.dtype, float],
) -> Judged:
    """The worst of all outputs."""
    if len(found) != len(wanted):
        return Judged(error=torch.inf, problem=f"{len(found)} outputs instead of {len(wanted)}")
    worst = Judged(error=0.0)
    for number, (given, right) in enumerate(zip(found, wanted, strict=True)):
        if given.shape != right.shape:
            shapes = f"{tuple(given.shape)} instead of {tuple(right.shape)}"
            return Judged(error=torch.inf, problem=f"output {number} is {shapes}")
        relative = tolerance.relative + rounding.get(given.dtype, 0.0)
        error = _error(given.double(), right.double(), relative, tolerance.absolute)
        if error > worst.error:
            worst = Judged(error=error)
            if error > 1:
                times = f"output {number} is off by {error:.3g} times what is allowed"
                worst = Judged(error=error, problem=times)
    return worst


def _error(found: Tensor, wanted: Tensor, relative: float, absolute: float) -> float:
    """The worst |found - wanted| as a share of what is allowed."""
    if wanted.numel() == 0 or torch.equal(found, wanted):
        return 0.0
    allowed = relative * wanted.abs() + absolute * wanted.square().mean().sqrt()
    share = (found - wanted).abs() / allowed
    share = torch.where(found == wanted, 0.0, share)  # 0 / 0 where nothing is allowed or off
    return share.nan_to_num(nan=torch.inf, posinf=torch.inf).max().item()


def corrupted(found: Outputs) -> Outputs:
    """The first output of floats with its middle element far off."""
    spoiled = list(found)
    for number, tensor in enumerate(found):
        if tensor.is_floating_point() and tensor.numel() > 0:
            wrong = tensor.clone(memory_format=torch.contiguous_format)
            flat = wrong.view(-1)
            flat[flat.numel() // 2] += 1 + flat.abs().max()
            spoiled[number] = wrong
            return tuple(spoiled)
    return found
