"""The policy that `trainforward` and `trainstep` train, and the batch it trains on.

    obs (N, D) -> Linear D to H -> layers times: Linear H to 3H, MinGRU -> Linear H to A + 1

N = mb·T rows: T steps of mb segments, drawn from a rollout of S segments. There are no biases. The
last layer returns A logits and a value. D = 96, H = 128, A = 4 and one layer are 62 080 parameters.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nsysflow.kernels.select_copy import Minibatch


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The options of the workloads that train this policy.

    Attributes:
        segments: segments in the rollout, S.
        horizon: steps per segment, T.
        minibatch: segments drawn for a training step, mb.
        obs: width of an observation, D.
        actions: number of actions, A.
        hidden: width of the layers, H.
        layers: number of MinGRU layers.
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
        """Rows of a minibatch, N."""
        return self.minibatch * self.horizon

    @property
    def weights(self) -> list[tuple[int, int]]:
        """Outputs and inputs of each weight matrix: encoder, layers, decoder."""
        layers = [(3 * self.hidden, self.hidden)] * self.layers
        return [(self.hidden, self.obs), *layers, (self.actions + 1, self.hidden)]


def initial_weights(sizes: Sizes, device: str) -> list[Tensor]:
    """Random float32 weights that keep the variance of a layer's input in its output."""
    return [torch.randn(out, width, device=device) / width**0.5 for out, width in sizes.weights]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The rows of a minibatch. `actions` is float64; the others are of one dtype or float32."""

    obs: Tensor
    """(N, D)."""
    states: Tensor
    """(layers, mb, 1, H): the state of each layer before the first step."""
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
        """The arguments of `ppo_loss` after the predictions."""
        return (
            self.actions, self.logprobs, self.advantages, self.weights, self.values, self.returns
        )  # fmt: skip

    def to(self, dtype: torch.dtype) -> "Batch":
        """The same batch with all tensors in one dtype."""
        return replace(self, **{name: tensor.to(dtype) for name, tensor in vars(self).items()})


def batch_of(minibatch: Minibatch) -> Batch:
    """A minibatch as rows. Only the first action of each step is used."""
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
