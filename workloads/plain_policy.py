"""Training the policy in plain PyTorch, with autograd: the definition of what a step does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from nsysflow.kernels.mingru_scan import mingru_scan_ref
from nsysflow.kernels.muon import clipped_ref, muon_ref
from nsysflow.kernels.ppo_loss import ppo_loss_ref
from nsysflow.regions import Region
from nsysflow.workloads.policy import Batch

LR: Final = 0.0025
MAX_NORM: Final = 0.5
"""Of all gradients together."""


@dataclass(frozen=True, kw_only=True)
class Operations:
    """What the step is made of, besides matrix products."""

    scan: Callable[..., Any]
    loss: Callable[..., Any]
    clip: Callable[..., Any]
    optimize: Callable[..., Any]


PLAIN: Final = Operations(
    scan=mingru_scan_ref, loss=ppo_loss_ref, clip=clipped_ref, optimize=muon_ref
)


def compiled() -> Operations:
    """The same, each by torch.compile into a few kernels; products stay the library's.

    Roundings to bf16 in between are part of Muon's definition. Left alone torch.compile takes them
    out, and its steps are up to a tenth away from PyTorch's.
    """
    kept: dict[str, str | int | bool | Callable[..., Any]] = {"emulate_precision_casts": True}
    return Operations(
        **{
            name: torch.compile(function, fullgraph=True, dynamic=False, options=kept)
            for name, function in vars(PLAIN).items()
        }
    )


class PlainStep:
    """A training step, phase by phase.

    Attributes:
        masters: the weights, in the type that they are stepped in.
        momenta: likewise.
        working: the weights, in the type that the products are computed in.
        predictions: (N, A + 1), once `decode` has run.
        loss_value: a scalar, once `loss` has run.
        gradients: one for each of the weights, once `backward` has run.
        empty: phases that launch nothing.
    """

    def __init__(
        self,
        masters: Sequence[Tensor],
        batch: Batch,
        dtype: torch.dtype,
        operations: Operations = PLAIN,
    ) -> None:
        """Copies of the weights; nothing is computed yet."""
        self.masters = [weight.clone() for weight in masters]
        self.momenta = [torch.zeros_like(weight) for weight in masters]
        # of the master's type it is the master itself
        self.working = [weight.to(dtype).detach().requires_grad_() for weight in self.masters]
        same = dtype == self.masters[0].dtype
        self.empty = {Region.WEIGHT_SYNC} if same else set()
        self._batch = batch
        self._operations = operations

    def encode(self) -> None:
        """From observations to what the layers take in."""
        self._x = functional.linear(self._batch.obs, self.working[0])

    def recur(self) -> None:
        """Through the layers."""
        for layer, state in zip(self.working[1:-1], self._batch.states, strict=True):
            combined = functional.linear(self._x, layer).view(len(state), -1, len(layer))
            out, _ = self._operations.scan(combined, state)
            self._x = out.view(self._x.shape)

    def decode(self) -> None:
        """To logits and value."""
        self.predictions = functional.linear(self._x, self.working[-1])

    def loss(self) -> None:
        """PPO's."""
        self.loss_value = self._operations.loss(self.predictions, *self._batch.targets)

    def backward(self) -> None:
        """Gradients of the loss for the weights, in the type of the working copies."""
        self.gradients = list(torch.autograd.grad(self.loss_value, self.working))
        self.loss_value = self.loss_value.detach()

    def grad_clip(self) -> None:
        """In the masters' type."""
        wide = [gradient.to(self.masters[0].dtype) for gradient in self.gradients]
        self.gradients = self._operations.clip(wide, MAX_NORM)

    def optimize(self) -> None:
        """Muon, on the masters."""
        weights, momenta = self._operations.optimize(
            self.masters, self.gradients, self.momenta, LR, max_norm=None
        )
        torch._foreach_copy_(self.masters, weights)
        torch._foreach_copy_(self.momenta, momenta)

    def sync_weights(self) -> None:
        """From the masters to the working copies, if they are two."""
        if Region.WEIGHT_SYNC not in self.empty:
            with torch.no_grad():
                torch._foreach_copy_(self.working, self.masters)

    def take(self, gradients: Sequence[Tensor]) -> None:
        """These, in place of what `backward` gave."""
        self.gradients = list(gradients)

    def restart(self, weights: Sequence[Tensor]) -> None:
        """Step from these weights next, without momentum."""
        torch._foreach_copy_(self.masters, list(weights))
        torch._foreach_zero_(self.momenta)
        self.sync_weights()
