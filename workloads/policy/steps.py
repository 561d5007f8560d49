"""A training step of the policy: in plain PyTorch with autograd, and with the fused kernels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from nsysflow.kernels.linear_pair import WIDTH_MAX, linear_pair, linear_pair_backward
from nsysflow.kernels.mingru_scan import (
    OUT_MAX,
    mingru_scan_backward,
    mingru_scan_forward,
    mingru_scan_linear_backward,
    mingru_scan_ref,
)
from nsysflow.kernels.muon import clipped_ref, muon, muon_ref, muon_table
from nsysflow.kernels.narrow_linear import narrow_linear, narrow_linear_backward
from nsysflow.kernels.ppo_loss import ppo_loss_and_gradient, ppo_loss_ref
from nsysflow.runtime.regions import Region
from nsysflow.workloads.common.measurement import WorkloadRegion
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
        self.empty: set[str] = {Region.WEIGHT_SYNC} if same else set()
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


class FusedStep:
    """The same step as `PlainStep`, with the same attributes, with fused kernels and no autograd.

    A step of one layer is 12 launches, none of them the library's. They use tensors allocated
    beforehand or by torch's allocator, and none of them waits, so a CUDA graph can capture the
    step.

    | phase | launches |
    | --- | --- |
    | forward | the encoder with the first layer's product, the scan, a narrow product |
    | loss | two, which also compute the gradient of the predictions |
    | backward | the scan with the decoder's gradients, a sum, three for the other two weights |
    | optimizer | two, which also clip and write the working copies |

    The ranges `encoder`, `grad_clip` and `weight_sync` are therefore empty. With wider layers the
    encoder is a library product of its own and its gradients are three, and with more outputs the
    decoder's gradients are two more launches.
    """

    def __init__(self, masters: Sequence[Tensor], batch: Batch, dtype: torch.dtype) -> None:
        """Copy the float32 weights and allocate what a step writes.

        Raises:
            ValueError: a weight is too large for `muon`, or the decoder for `narrow_linear`.
        """
        self.masters = [weight.clone() for weight in masters]
        narrow = dtype != torch.float32
        self.working = [weight.to(dtype) for weight in self.masters] if narrow else self.masters
        self.gradients = [torch.zeros_like(weight) for weight in self.working]
        self._table = muon_table(
            self.masters, self.gradients, working=self.working if narrow else ()
        )
        self.momenta = list(self._table.momenta)
        self._lr = torch.tensor([LR], device=batch.obs.device)
        self._batch = batch
        rows = len(batch.obs)
        encoder, *layers, decoder = self.working
        self._inputs = [batch.obs.new_empty(rows, len(encoder))] * (len(layers) + 1)
        """The input of each layer and of the decoder; `linear_pair` does not write the first."""
        self._saved = [self._inputs[0]] * len(layers)
        """What each scan saves for its backward; float32 after the first `recur`."""
        self._combined = [batch.obs.new_empty(rows, len(layer)) for layer in layers]
        self._combined_steps = [self._steps(combined) for combined in self._combined]
        self.predictions = batch.obs.new_empty(rows, len(decoder))
        self._slope = batch.obs.new_empty(rows, len(encoder))
        self._slope_steps = self._steps(self._slope)
        sides = (encoder.shape[1], len(encoder))
        self._paired = len(layers) > 0 and max(sides) <= WIDTH_MAX
        self.empty: set[str] = {Region.GRAD_CLIP, Region.WEIGHT_SYNC}
        if self._paired:
            self.empty.add(WorkloadRegion.ENCODER)

    def encode(self) -> None:
        """Compute the layers' input from the observations, unless `recur` does."""
        if not self._paired:
            torch.mm(self._batch.obs, self.working[0].t(), out=self._inputs[0])

    def recur(self) -> None:
        """Run the recurrent layers."""
        encoder, *layers, _ = self.working
        for number, layer in enumerate(layers):
            if number == 0 and self._paired:
                linear_pair(self._batch.obs, encoder, layer, y=self._combined[0])
            else:
                torch.mm(self._inputs[number], layer.t(), out=self._combined[number])
            out, _, self._saved[number] = mingru_scan_forward(
                self._combined_steps[number], self._batch.states[number]
            )
            self._inputs[number + 1] = out.flatten(0, 1)

    def decode(self) -> None:
        """Compute logits and value."""
        narrow_linear(self._inputs[-1], self.working[-1], out=self.predictions)

    def loss(self) -> None:
        """Compute PPO's loss and its gradient."""
        self.loss_value, self._gradient = ppo_loss_and_gradient(
            (self.predictions, *self._batch.targets)
        )

    def backward(self) -> None:
        """Compute the gradients of the weights."""
        encoder, *layers, _ = self.working
        for number in reversed(range(len(layers))):
            flat = self._scan_backward(number).flatten(0, 1)
            if number == 0 and self._paired:
                linear_pair_backward(
                    flat, self._batch.obs, encoder, layers[0],
                    dfirst=self.gradients[0], dsecond=self.gradients[1],
                )  # fmt: skip
                return
            torch.mm(flat.t(), self._inputs[number], out=self.gradients[1 + number])
            torch.mm(flat, layers[number], out=self._slope)
        torch.mm(self._slope.t(), self._batch.obs, out=self.gradients[0])

    def _scan_backward(self, number: int) -> Tensor:
        """The gradient of a scan's input; of the last one also that of the decoder's weight."""
        scanned = (self._combined_steps[number], self._saved[number])
        decoder, dweight = self.working[-1], self.gradients[-1]
        if number == len(self._saved) - 1:
            if len(decoder) <= OUT_MAX:
                return mingru_scan_linear_backward(
                    *scanned, self._gradient, decoder, dweight=dweight
                )
            narrow_linear_backward(
                self._gradient, self._inputs[-1], decoder, dx=self._slope, dweight=dweight
            )
        return mingru_scan_backward(*scanned, self._slope_steps)[0]

    def grad_clip(self) -> None:
        """Do nothing: `optimize` clips."""

    def optimize(self) -> None:
        """Clip, update the masters with Muon, and write the working copies."""
        muon(self._table, self._lr, max_norm=MAX_NORM)

    def sync_weights(self) -> None:
        """Do nothing: `optimize` writes the working copies."""

    def take(self, gradients: Sequence[Tensor]) -> None:
        """Use these gradients instead of those from `backward`."""
        torch._foreach_copy_(self.gradients, list(gradients))

    def restart(self, weights: Sequence[Tensor]) -> None:
        """Start again from these weights, with momenta of zero."""
        torch._foreach_copy_(self.masters, list(weights))
        torch._foreach_copy_(self.working, self.masters)
        torch._foreach_zero_(self.momenta)

    def _steps(self, rows: Tensor) -> Tensor:
        """Rows (N, ...) as (mb, T, ...)."""
        return rows.view(self._batch.states.shape[1], -1, rows.shape[1])
