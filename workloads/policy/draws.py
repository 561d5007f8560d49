"""`prio`'s draws in plain PyTorch: the same rows, from the same random numbers.

torch.multinomial would draw other rows, and minibatches of different rows cannot be compared. The
random numbers are made beforehand; the remaining steps are those of torch.multinomial.
"""

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from nsysflow.kernels.prio import Draws, group_of, probabilities_ref

ROUNDS: Final = 10
MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS: Final = (0x9E3779B9, 0xBB67AE85)
LOW: Final = 0xFFFFFFFF
"""Mask of the lower 32 of 64 bits."""


def philox(seed: int, numbers: Tensor, offset: int) -> Tensor:
    """Two of the four 32-bit words of Philox4x32-10 (Salmon et al. 2011) of (number, offset).

    Args:
        seed: the key, below 2**63.
        numbers: (draws,) int64.
        offset: below 2**63.

    Returns:
        (2, draws) int64.
    """
    zero = torch.zeros_like(numbers)
    c0, c1, c2, c3 = numbers, zero + (offset & LOW), zero + (offset >> 32), zero
    keys = [seed & LOW, seed >> 32]
    for _ in range(ROUNDS):
        # int64 wraps around: the lower half is right, and the upper half once it is masked
        first, second = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c2 = (second >> 32 & LOW) ^ c1 ^ keys[0], (first >> 32 & LOW) ^ c3 ^ keys[1]
        c1, c3 = second & LOW, first & LOW
        keys = [(key + step) & LOW for key, step in zip(keys, KEY_STEPS, strict=True)]
    return torch.stack([c0, c1])


def uniforms(seed: int, draws: int, offset: int) -> Tensor:
    """Two numbers in [0, 1) for each draw, as `prio` makes them: (2, draws) float32, on the CPU."""
    bits = philox(seed, torch.arange(draws), offset)
    signed = torch.where(bits >= 2**31, bits - 2**32, bits)
    return torch.where(signed < 0, -signed - 1, signed).float() * 4.6566127342e-10


def draw_rows(advantages: Tensor, numbers: Tensor, *, alpha: float, beta: float) -> Draws:
    """Rows drawn by priority: the first number picks a group, the second a row in it.

    Args:
        advantages: (S, T).
        numbers: (2, draws), from `uniforms`.
        alpha: as in `prio`.
        beta: as in `prio`.
    """
    p = probabilities_ref(advantages, alpha=alpha)
    rows = len(p)
    group = group_of(rows)
    groups = functional.pad(p, (0, -rows % group)).view(-1, group)
    chosen = _place(groups.sum(1).cumsum(0)[None, :], numbers[0])
    row = chosen * group + _place(groups.cumsum(1)[chosen], numbers[1])
    row = row.clamp(max=rows - 1)
    return Draws(rows=row, weight=(rows * p[row]) ** -beta)


def _place(reach: Tensor, number: Tensor) -> Tensor:
    """For each row of running sums, the first place above `number` times the last sum: (draws,)."""
    passed = reach <= number[:, None] * reach[:, -1:]
    return passed.sum(1).clamp(max=reach.shape[1] - 1)
