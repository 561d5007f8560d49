"""The policy that `trainforward` and `trainstep` train, and what it learns from.

    obs (N, D) -> Linear D to H -> layers times: Linear H to 3H, MinGRU -> Linear H to A + 1

N = mb·T rows: T steps of mb segments, drawn from a rollout of S. No biases; the last layer gives A
logits and a value. With D = 96, H = 128, A = 4 and one layer that is 62 080 parameters.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nsysflow.kernels.select_copy import Minibatch


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The options of the workloads about this policy.

    Attributes:
        segments: in the rollout, S.
        horizon: steps of a segment, T.
        minibatch: segments drawn for a step of training, mb.
        obs: width of an observation, D.
        actions: to choose from, A.
        hidden: width of the layers, H.
        layers: of MinGRU.
    """

    segments: int
    horizon: int
    minibatch: int
    obs: int
    actions: int
    hidden: int
    layers: int

    @property
    def rows(self) -> int:
        """Of a minibatch, N."""
        return self.minibatch * self.horizon

    @property
    def weights(self) -> list[tuple[int, int]]:
        """Outputs and inputs of each matrix: encoder, layers, decoder."""
        layers = [(3 * self.hidden, self.hidden)] * self.layers
        return [(self.hidden, self.obs), *layers, (self.actions + 1, self.hidden)]


def initial_weights(sizes: Sizes, device: str) -> list[Tensor]:
    """Float32, of torch's random numbers: what a layer puts out varies as what it takes in."""
    return [torch.randn(out, width, device=device) / width**0.5 for out, width in sizes.weights]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What a step trains on; all but `actions`, float64, of one type or float32."""

    obs: Tensor
    """(N, D)."""
    states: Tensor
    """(layers, mb, 1, H): of each layer, before the first step."""
    actions: Tensor
    """(N,), whole numbers below A."""
    logprobs: Tensor
    """(N,)."""
    advantages: Tensor
    """(N,)."""
    weights: Tensor
    """(mb,)."""
    values: Tensor
    """(N,)."""
    returns: Tensor
    """(N,)."""

    @property
    def targets(self) -> tuple[Tensor, ...]:
        """What `ppo_loss` takes after the predictions."""
        return (
            self.actions, self.logprobs, self.advantages, self.weights, self.values, self.returns
        )  # fmt: skip

    def to(self, dtype: torch.dtype) -> "Batch":
        """All of it in one type."""
        return replace(self, **{name: each.to(dtype) for name, each in vars(self).items()})


def batch_of(minibatch: Minibatch) -> Batch:
    """A minibatch as rows; of its actions, the first of each step."""
    return Batch(
        obs=minibatch.obs.flatten(0, 1),
        states=minibatch.state,
        actions=minibatch.actions[:, :, 0].flatten().contiguous(),
        logprobs=minibatch.logprobs.flatten(),
        advantages=minibatch.advantages.flatten(),
        weights=minibatch.weight,
        values=minibatch.values.flatten(),
        returns=minibatch.returns.flatten(),
    )
