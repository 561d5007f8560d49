"""How `prio` is benchmarked. Its draws are random, so its weights are checked for those rows."""

from collections.abc import Callable
from math import sqrt
from typing import Final

import torch
from torch import Tensor

from nsysflow.kernels.bench.problem import (
    Benchmark,
    Cost,
    Outputs,
    Problem,
    Random,
    Shape,
    Tolerance,
)
from nsysflow.kernels.bench.problems.rollout import SHAPE, TOY, only
from nsysflow.kernels.prio import Draws, prio, prio_bytes, prio_ref, probabilities_ref

ALPHA: Final = 0.6
BETA: Final = 0.4
SEED: Final = 7
DEVIATIONS: Final = 5
"""Standard deviations that the mean position may be off: one seed in 1.7 million exceeds it."""


def drawing(shape: Shape, random: Random) -> Callable[[Tensor], Draws]:
    """`prio` with fixed settings and its own offset on the device."""
    offset = torch.zeros(1, dtype=torch.int64, device=random.device)
    return lambda advantages: prio(
        advantages, shape["mb"], seed=SEED, offset=offset, alpha=ALPHA, beta=BETA
    )


def drawn_ref(advantages: Tensor, draws: int) -> Draws:
    """Draws made by torch.multinomial."""
    return prio_ref(advantages, draws, alpha=ALPHA, beta=BETA)


def expected_draws(advantages: Tensor, rows: Tensor) -> Outputs:
    """The expected rows and weights (float64): `rows` if p may have drawn them, else -1."""
    p = probabilities_ref(advantages.double(), alpha=ALPHA)
    if not ((rows >= 0) & (rows < len(p))).all():
        return torch.full_like(rows, -1), torch.ones_like(rows, dtype=torch.float64)
    weight = (len(p) * p[rows]) ** -BETA
    place = (p.cumsum(0) - p / 2)[rows] / p.sum()  # uniform from 0 to 1 if drawn by p
    far = (place.mean() - 0.5).abs() > DEVIATIONS / sqrt(12 * len(rows))
    return torch.full_like(rows, -1) if far else rows, weight


def make(shape: Shape, random: Random) -> Problem:
    """A problem: mb draws from S segments of T steps."""
    advantages = random.normal(shape["S"], shape["T"])
    draw = drawing(shape, random)

    def reference(given: Tensor) -> Outputs:
        drawn = drawn_ref(given, shape["mb"])
        return drawn.rows, drawn.weight

    def kernel(given: Tensor) -> Outputs:
        drawn = draw(given)
        return drawn.rows, drawn.weight

    return Problem(
        inputs=(advantages,),
        reference=reference,
        kernels={"triton": kernel},
        expected=lambda outputs: expected_draws(advantages, outputs[0]),
        tolerance=Tolerance(relative=1e-5, absolute=0),
        cost={"fwd": Cost(bytes=prio_bytes(advantages, shape["mb"]), flops=2 * advantages.numel())},
    )


BENCHMARK: Final = Benchmark(
    make=make,
    shape=only(SHAPE, "S", "T", "mb"),
    toy=only(TOY, "S", "T", "mb"),
    swept=(("S", "mb"), ("T",)),
)
