"""A step of `rolloutcopy`, in PyTorch and with the fused kernels: from rollout to minibatch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from math import log
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from nsysflow.kernels.advantage import advantage, advantage_ref
from nsysflow.kernels.prio import Draws, group_of, prio, prio_ref, probabilities_ref
from nsysflow.kernels.select_copy import (
    Minibatch,
    Rollout,
    empty_minibatch,
    select_copy,
    select_copy_ref,
)
from nsysflow.workloads.common.accuracy import Comparison, distance
from nsysflow.workloads.policy.model import Sizes

EPISODE_STARTS: Final = 0.02
"""Fraction of the steps at which an episode begins."""


@dataclass(frozen=True, kw_only=True)
class RecordedRollout:
    """A rollout and the inputs of its advantages, (S, T) each."""

    rollout: Rollout
    """Its advantages are float32 zeros until they are computed."""
    rewards: Tensor
    done: Tensor
    ratio: Tensor

    @property
    def steps(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The arguments of `advantage`."""
        return self.rollout.values, self.rewards, self.done, self.ratio


def random_rollout(sizes: Sizes, device: str, dtype: torch.dtype) -> RecordedRollout:
    """A random rollout, recorded by a policy that chose its actions almost uniformly."""
    steps = (sizes.segments, sizes.horizon)

    def normal(*shape: int, scale: float = 1.0, mean: float = 0.0) -> Tensor:
        return torch.randn(shape, device=device).mul_(scale).add_(mean).to(dtype)

    actions = torch.randint(sizes.actions, (*steps, sizes.actions), device=device).double()
    rollout = Rollout(
        obs=normal(*steps, sizes.obs),
        actions=actions,
        logprobs=normal(*steps, scale=0.1, mean=-log(sizes.actions)),
        values=normal(*steps, scale=0.1),
        advantages=torch.zeros(steps, device=device),
    )
    return RecordedRollout(
        rollout=rollout,
        rewards=normal(*steps),
        done=(torch.rand(steps, device=device) < EPISODE_STARTS).to(dtype),
        ratio=normal(*steps, scale=0.3).exp(),
    )


def minibatch_of(sizes: Sizes, recorded: RecordedRollout) -> Minibatch:
    """Segments drawn by priority and copied, in plain PyTorch. Their states are zero."""
    recorded.rollout.advantages.copy_(advantage_ref(*recorded.steps))
    draws = prio_ref(recorded.rollout.advantages, sizes.minibatch)
    state = recorded.rollout.obs.new_empty(sizes.layers, sizes.minibatch, 1, sizes.hidden)
    return select_copy_ref(recorded.rollout, draws, state)


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

    In plain PyTorch the same rows as `prio`'s, from the same random numbers, which are made
    beforehand. torch.multinomial would draw other rows, and minibatches of different rows cannot be
    compared; the steps are its own.

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


ALPHA: Final = 0.6
BETA: Final = 0.4


class PlainCopy:
    """The step in PyTorch, with random numbers made beforehand.

    Attributes:
        rollout: the rollout; its advantages are computed in each step.
        draws: the rows drawn in the last step.
        minibatch: the minibatch of the last step.
    """

    def __init__(self, recorded: RecordedRollout, state: Tensor, numbers: Sequence[Tensor]) -> None:
        """Keep the inputs; nothing is computed yet.

        Args:
            recorded: the rollout and the inputs of its advantages.
            state: a tensor like the state to zero, (layers, mb, 1, H).
            numbers: (2, mb) for each step, from `uniforms`; used in turn.
        """
        self.rollout = recorded.rollout
        self._inputs = recorded.steps
        self._state = state
        self._numbers = numbers
        self._step = 0

    def compute_advantage(self) -> None:
        """Compute the advantage of every step of every segment."""
        self.rollout.advantages.copy_(advantage_ref(*self._inputs))

    def compute_prio(self) -> None:
        """Weight the segments and draw rows."""
        numbers = self._numbers[self._step % len(self._numbers)]
        self._step += 1
        self.draws = draw_rows(self.rollout.advantages, numbers, alpha=ALPHA, beta=BETA)

    def select_and_copy(self) -> None:
        """Copy the drawn rows into a new minibatch."""
        self.minibatch = select_copy_ref(self.rollout, self.draws, self._state)

    def restart(self) -> None:
        """Make the next step draw what the first one drew."""
        self._step = 0


class FusedCopy:
    """The same step with four launches, into the same memory each time."""

    def __init__(self, recorded: RecordedRollout, state: Tensor, seed: int) -> None:
        """Keep the inputs; nothing is computed yet. The seed decides the draws."""
        self.rollout = recorded.rollout
        self._inputs = recorded.steps
        self._seed = seed
        self._offset = torch.zeros(1, dtype=torch.int64, device=state.device)
        rows = torch.empty(state.shape[1], dtype=torch.int64, device=state.device)
        self.draws = Draws(rows=rows, weight=torch.empty_like(rows, dtype=torch.float32))
        self.minibatch = empty_minibatch(
            recorded.rollout, len(rows), state.shape, state_dtype=state.dtype
        )

    def compute_advantage(self) -> None:
        """Compute the advantages, in one launch."""
        advantage(*self._inputs, out=self.rollout.advantages)

    def compute_prio(self) -> None:
        """Weight the segments and draw rows, in two launches; each call draws others."""
        prio(
            self.rollout.advantages, len(self.draws.rows), seed=self._seed, offset=self._offset,
            alpha=ALPHA, beta=BETA, out=self.draws,
        )  # fmt: skip

    def select_and_copy(self) -> None:
        """Copy the drawn rows into the minibatch, in one launch."""
        select_copy(self.rollout, self.draws, out=self.minibatch)

    def restart(self) -> None:
        """Make the next step draw what the first one drew."""
        self._offset.zero_()


Copy = PlainCopy | FusedCopy


def compare(plain: PlainCopy, fused: FusedCopy, recorded: RecordedRollout) -> list[Comparison]:
    """Compare one step of each. They run one after the other: both write the same advantages."""
    exact = advantage_ref(*(tensor.double() for tensor in recorded.steps))
    plain_errors, fused_errors = (_distances(copy, exact) for copy in (plain, fused))
    other = (plain.draws.rows != fused.draws.rows).double().mean().item()
    return [
        *(
            Comparison(what=what, torch_error=theirs, error=ours)
            for (what, theirs), (_, ours) in zip(plain_errors, fused_errors, strict=True)
        ),
        # a draw at the border between two rows may go to either
        Comparison(what="rows drawn differently", torch_error=0.0, error=other, band=0.01),
    ]


def _distances(copy: Copy, exact: Tensor) -> list[tuple[str, float]]:
    copy.compute_advantage()
    advantages = distance(copy.rollout.advantages, exact)
    copy.compute_prio()
    p = probabilities_ref(copy.rollout.advantages.double(), alpha=ALPHA)
    weight = (len(p) * p[copy.draws.rows]) ** -BETA
    copy.select_and_copy()
    wanted = select_copy_ref(copy.rollout, copy.draws, copy.minibatch.state)
    copied = zip(_tensors(copy.minibatch), _tensors(wanted), strict=True)
    return [
        ("advantages", advantages),
        ("weights of the draws", distance(copy.draws.weight, weight)),
        ("minibatch", max(0.0 if torch.equal(a, b) else torch.inf for a, b in copied)),
    ]


def _tensors(minibatch: Minibatch) -> Iterator[Tensor]:
    return (getattr(minibatch, field.name) for field in fields(minibatch))
