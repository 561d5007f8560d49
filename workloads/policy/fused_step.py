"""A training step of the policy with the fused kernels, without autograd.

A step of one layer is 14 launches, plus what the library adds to its products. They use tensors
allocated beforehand or by torch's allocator, and none of them waits, so a CUDA graph can capture
the step.

| phase | launches |
| --- | --- |
| forward | two library products, the scan, a narrow product |
| loss | two, which also compute the gradient of the predictions |
| backward | two for the decoder, the scan, three library products |
| optimizer | two, which also clip and write the working copies |

The ranges `grad_clip` and `weight_sync` are therefore empty.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from nsysflow.kernels.mingru_scan import mingru_scan_backward, mingru_scan_forward
from nsysflow.kernels.muon import muon, muon_table
from nsysflow.kernels.narrow_linear import narrow_linear, narrow_linear_backward
from nsysflow.kernels.ppo_loss import ppo_loss_and_gradient
from nsysflow.runtime.regions import Region
from nsysflow.workloads.policy.model import Batch
from nsysflow.workloads.policy.plain_step import LR, MAX_NORM


class FusedStep:
    """The same step as `PlainStep`, with the same attributes."""

    empty: Final = {Region.GRAD_CLIP, Region.WEIGHT_SYNC}

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
        """The input of each layer and of the decoder."""
        self._saved = [self._inputs[0]] * len(layers)
        """What each scan saves for its backward; float32 after the first `recur`."""
        self._combined = [batch.obs.new_empty(rows, len(layer)) for layer in layers]
        self._combined_steps = [self._steps(combined) for combined in self._combined]
        self.predictions = batch.obs.new_empty(rows, len(decoder))
        self._slope = batch.obs.new_empty(rows, len(encoder))
        self._slope_steps = self._steps(self._slope)

    def encode(self) -> None:
        """Compute the layers' input from the observations."""
        torch.mm(self._batch.obs, self.working[0].t(), out=self._inputs[0])

    def recur(self) -> None:
        """Run the recurrent layers."""
        for number, layer in enumerate(self.working[1:-1]):
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
        _, *layers, decoder = self.working
        slope = self._slope
        narrow_linear_backward(
            self._gradient, self._inputs[-1], decoder, dx=slope, dweight=self.gradients[-1]
        )
        for number in reversed(range(len(layers))):
            dcombined, _ = mingru_scan_backward(
                self._combined_steps[number], self._saved[number], self._slope_steps
            )
            flat = dcombined.flatten(0, 1)
            torch.mm(flat.t(), self._inputs[number], out=self.gradients[1 + number])
            torch.mm(flat, layers[number], out=slope)
        torch.mm(slope.t(), self._batch.obs, out=self.gradients[0])

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
