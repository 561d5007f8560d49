"""A training step of the policy in plain PyTorch with autograd: the definition."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from nsysflow.kernels.mingru_scan import mingru_scan_ref
from nsysflow.kernels.muon import clipped_ref, muon_ref
from nsysflow.kernels.ppo_loss import ppo_loss_ref
from nsysflow.runtime.regions import Region
from nsysflow.workloads.policy.model import Batch

LR: Final = 0.0025
MAX_NORM: Final = 0.5
"""The largest norm of all gradients together."""


@dataclass(frozen=True, kw_only=True)
class Operations:
    """The operations of the step, other than matrix products."""

    scan: Callable[..., Any]
    loss: Callable[..., Any]
    clip: Callable[..., Any]
    optimize: Callable[..., Any]


PLAIN: Final = Operations(
    scan=mingru_scan_ref, loss=ppo_loss_ref, clip=clipped_ref, optimize=muon_ref
)


def compiled_operations() -> Operations:
    """The operations under torch.compile, each a few kernels. Products stay with the library.

    Rounding intermediate results to bf16 is part of Muon's definition. By default torch.compile
    removes these roundings, and its steps are up to 10 % away from PyTorch's.
    """
    keep_roundings: dict[str, str | int | bool | Callable[..., Any]] = {
        "emulate_precision_casts": True
    }
    return Operations(
        **{
            name: torch.compile(function, fullgraph=True, dynamic=False, options=keep_roundings)
            for name, function in vars(PLAIN).items()
        }
    )


class PlainStep:
    """A training step, phase by phase.

    Attributes:
        masters: the weights in the dtype in which the optimizer updates them.
        momenta: the momenta, in the same dtype.
        working: the weights in the dtype of the matrix products.
        predictions: (N, A + 1), after `decode`.
        loss_value: a scalar, after `loss`.
        gradients: one per weight, after `backward`.
        empty: phases that launch nothing.
    """

    def __init__(
        self,
        masters: Sequence[Tensor],
        batch: Batch,
        dtype: torch.dtype,
        operations: Operations = PLAIN,
    ) -> None:
        """Copy the weights; nothing is computed yet."""
        self.masters = [weight.clone() for weight in masters]
        self.momenta = [torch.zeros_like(weight) for weight in masters]
        # in the master's dtype, the working weight is the master itself
        self.working = [weight.to(dtype).detach().requires_grad_() for weight in self.masters]
        same = dtype == self.masters[0].dtype
        self.empty = {Region.WEIGHT_SYNC} if same else set()
        self._batch = batch
        self._operations = operations

    def encode(self) -> None:
        """Compute the layers' input from the observations."""
        self._x = functional.linear(self._batch.obs, self.working[0])

    def recur(self) -> None:
        """Run the recurrent layers."""
        for layer, state in zip(self.working[1:-1], self._batch.states, strict=True):
            combined = functional.linear(self._x, layer).view(len(state), -1, len(layer))
            out, _ = self._operations.scan(combined, state)
            self._x = out.view(self._x.shape)

    def decode(self) -> None:
        """Compute logits and value."""
        self.predictions = functional.linear(self._x, self.working[-1])

    def loss(self) -> None:
        """Compute PPO's loss."""
        self.loss_value = self._operations.loss(self.predictions, *self._batch.targets)

    def backward(self) -> None:
        """Compute the gradients of the weights, in the dtype of the working copies."""
        self.gradients = list(torch.autograd.grad(self.loss_value, self.working))
        self.loss_value = self.loss_value.detach()

    def grad_clip(self) -> None:
        """Clip the gradients, in the masters' dtype."""
        wide = [gradient.to(self.masters[0].dtype) for gradient in self.gradients]
        self.gradients = self._operations.clip(wide, MAX_NORM)

    def optimize(self) -> None:
        """Update the masters with Muon."""
        weights, momenta = self._operations.optimize(
            self.masters, self.gradients, self.momenta, LR, max_norm=None
        )
        torch._foreach_copy_(self.masters, weights)
        torch._foreach_copy_(self.momenta, momenta)

    def sync_weights(self) -> None:
        """Copy the masters to the working weights, unless they are the same tensors."""
        if Region.WEIGHT_SYNC not in self.empty:
            with torch.no_grad():
                torch._foreach_copy_(self.working, self.masters)

    def take(self, gradients: Sequence[Tensor]) -> None:
        """Use these gradients instead of those from `backward`."""
        self.gradients = list(gradients)

    def restart(self, weights: Sequence[Tensor]) -> None:
        """Start again from these weights, with momenta of zero."""
        torch._foreach_copy_(self.masters, list(weights))
        torch._foreach_zero_(self.momenta)
        self.sync_weights()
