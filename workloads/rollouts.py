"""A rollout of made-up numbers, such as an environment and an untrained policy would record."""

from dataclasses import dataclass
from math import log
from typing import Final

import torch
from torch import Tensor

from nsysflow.kernels.advantage import advantage_ref
from nsysflow.kernels.prio import prio_ref
from nsysflow.kernels.select_copy import Minibatch, Rollout, select_copy_ref
from nsysflow.workloads.policy import Sizes

ENDS: Final = 0.02
"""Share of steps at which an episode begins."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A rollout, and what its advantages are made of; (S, T) each."""

    rollout: Rollout
    """Its advantages are float32 zeros until someone computes them."""
    rewards: Tensor
    done: Tensor
    ratio: Tensor

    @property
    def steps(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What `advantage` takes."""
        return self.rollout.values, self.rewards, self.done, self.ratio


def recorded(sizes: Sizes, device: str, dtype: torch.dtype) -> Recorded:
    """A rollout from torch's random numbers; the policy of then chose nearly evenly."""
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
    return Recorded(
        rollout=rollout,
        rewards=normal(*steps),
        done=(torch.rand(steps, device=device) < ENDS).to(dtype),
        ratio=normal(*steps, scale=0.3).exp(),
    )


def minibatch_of(sizes: Sizes, of: Recorded) -> Minibatch:
    """Segments of it, drawn by priority and copied, in plain PyTorch; states are zero."""
    of.rollout.advantages.copy_(advantage_ref(*of.steps))
    draws = prio_ref(of.rollout.advantages, sizes.minibatch)
    state = of.rollout.obs.new_empty(sizes.layers, sizes.minibatch, 1, sizes.hidden)
    return select_copy_ref(of.rollout, draws, state)
