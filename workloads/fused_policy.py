"""Training the policy with the fused kernels, forward and backward written out: no autograd.

A step of one layer is 14 launches, and what the library adds to its products. All are on tensors
that are there before it or come from torch's allocator, and none of them waits: so it can be
captured in a CUDA graph.

| phase | launches |
| --- | --- |
| forward | two products of the library, the scan, a narrow product |
| loss | two, which leave the gradient of the predictions too |
| backward | two for the decoder, the scan, three products of the library |
| optimizer | two, which also clip and write the working copies |

So the ranges `grad_clip` and `weight_sync` hold no launch here.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from nsysflow.kernels.mingru_scan import mingru_scan_backward, mingru_scan_forward
from nsysflow.kernels.muon import muon, muon_table
from nsysflow.kernels.narrow_linear import narrow_linear, narrow_linear_backward
from nsysflow.kernels.ppo_loss import ppo_loss_and_gradient
from nsysflow.regions import Region
from nsysflow.workloads.plain_policy import LR, MAX_NORM
from nsysflow.workloads.policy import Batch


class FusedStep:
    """What `PlainStep` is, with the same attributes."""

    empty: Final = {Region.GRAD_CLIP, Region.WEIGHT_SYNC}

    def __init__(self, masters: Sequence[Tensor], batch: Batch, dtype: torch.dtype) -> None:
        """Copies of the float32 weights, and all that a step writes into.

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
        """Of each layer, and of the decoder."""
        self._saved = [self._inputs[0]] * len(layers)
        """What each scan leaves for its backward; once it has run, float32."""
        self._combined = [batch.obs.new_empty(rows, len(layer)) for layer in layers]
        self._combined_steps = [self._steps(combined) for combined in self._combined]
        self.predictions = batch.obs.new_empty(rows, len(decoder))
        self._slope = batch.obs.new_empty(rows, len(encoder))
        self._slope_steps = self._steps(self._slope)

    def encode(self) -> None:
        """From observations to what the layers take in."""
        torch.mm(self._batch.obs, self.working[0].t(), out=self._inputs[0])

    def recur(self) -> None:
        """Through the layers."""
        for number, layer in enumerate(self.working[1:-1]):
            torch.mm(self._inputs[number], layer.t(), out=self._combined[number])
            out, _, self._saved[number] = mingru_scan_forward(
                self._combined_steps[number], self._batch.states[number]
            )
            self._inputs[number + 1] = out.flatten(0, 1)

    def decode(self) -> None:
        """To logits and value."""
        narrow_linear(self._inputs[-1], self.working[-1], out=self.predictions)

    def loss(self) -> None:
        """PPO's, and its gradient."""
        self.loss_value, self._gradient = ppo_loss_and_gradient(
            (self.predictions, *self._batch.targets)
        )

    def backward(self) -> None:
        """Gradients of the loss for the weights."""
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
        """In the first launch of `optimize`, and in what the second one reads of it."""

    def optimize(self) -> None:
        """Clip, Muon on the masters, and their copies."""
        muon(self._table, self._lr, max_norm=MAX_NORM)

    def sync_weights(self) -> None:
        """In the second launch of `optimize`."""

    def take(self, gradients: Sequence[Tensor]) -> None:
        """These, in place of what `backward` gave."""
        torch._foreach_copy_(self.gradients, list(gradients))

    def restart(self, weights: Sequence[Tensor]) -> None:
        """Step from these weights next, without momentum."""
        torch._foreach_copy_(self.masters, list(weights))
        torch._foreach_copy_(self.working, self.masters)
        torch._foreach_zero_(self.momenta)

    def _steps(self, rows: Tensor) -> Tensor:
        """(N, ...) as (mb, T, ...)."""
        return rows.view(self._batch.states.shape[1], -1, rows.shape[1])
