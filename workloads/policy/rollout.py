"""A rollout of random numbers, similar to what an untrained policy would record."""

from dataclasses import dataclass
from math import log
from typing import Final

import torch
from torch import Tensor

from nsysflow.kernels.advantage import advantage_ref
from nsysflow.kernels.prio import prio_ref
from nsysflow.kernels.select_copy import Minibatch, Rollout, select_copy_ref
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
