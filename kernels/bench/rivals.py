"""The same results as others would compute them: rivals of our kernels in `benchmarks/races.py`."""

import math
from collections.abc import Callable, Sequence
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from nsysflow.kernels.arguments import cdiv, next_power_of_2
from nsysflow.kernels.bench.problem import Outputs
from nsysflow.kernels.muon import clipped_ref
from nsysflow.kernels.muon_kernels import TRIPLES

Settings = tuple[int, int, int]
"""Rows and steps of a tile, and warps."""


@triton.jit
def _earlier_of_later(later_delta, later_keep, delta, keep):
    return delta + keep * later_delta, keep * later_keep


@triton.jit
def _advantage_by_scan(
    values_ptr, rewards_ptr, done_ptr, ratio_ptr, out_ptr, rows, steps, tiles, gamma, gamma_lambda,
    ROWS: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    beyond = tl.zeros([ROWS, 1], tl.float32)
    for tile in range(tiles):
        step = ((tiles - 1 - tile) * SPAN + tl.arange(0, SPAN))[None, :]
        at = row * steps + step
        here = (row < rows) & (step < steps)
        inside = (row < rows) & (step < steps - 1)
        value = tl.load(values_ptr + at, mask=here, other=0).to(tl.float32)
        ratio = tl.load(ratio_ptr + at, mask=here, other=0).to(tl.float32)
        next_value = tl.load(values_ptr + at + 1, mask=inside, other=0).to(tl.float32)
        reward = tl.load(rewards_ptr + at + 1, mask=inside, other=0).to(tl.float32)
        n = 1.0 - tl.load(done_ptr + at + 1, mask=inside, other=0).to(tl.float32)
        clipped = tl.where(ratio > 1.0, 1.0, ratio)
        delta = tl.where(inside, clipped * (reward + gamma * n * next_value - value), 0.0)
        keep = tl.where(inside, gamma_lambda * n * clipped, 0.0)
        delta, keep = tl.associative_scan((delta, keep), 1, _earlier_of_later, reverse=True)
        a = delta + keep * beyond
        tl.store(out_ptr + at, a, mask=here)
        beyond = tl.sum(tl.where((tl.arange(0, SPAN) == 0)[None, :], a, 0.0), 1, keep_dims=True)


def advantage_by_scan(settings: Settings) -> Callable[..., Outputs]:
    """GAE fused over time: a program per block of rows, tl.associative_scan over time."""
    at_once, span, warps = settings

    def call(values: Tensor, rewards: Tensor, done: Tensor, ratio: Tensor) -> Outputs:
        rows, steps = values.shape
        out = torch.empty(values.shape, dtype=torch.float32, device=values.device)
        _advantage_by_scan[(cdiv(rows, at_once),)](
            values, rewards, done, ratio, out, rows, steps, cdiv(steps, span), 0.99, 0.99 * 0.95,
            ROWS=at_once, SPAN=span, num_warps=warps,
        )  # fmt: skip
        return (out,)

    return call


def scan_settings(rows: int, steps: int) -> list[Settings]:
    """Settings of `advantage_by_scan` to choose from."""
    spans = sorted({min(next_power_of_2(steps), span) for span in (64, 256, 1024, 4096)})
    found = [(at_once, span) for span in spans for at_once in (1, 4, 16)]
    return [
        (at_once, span, warps)
        for at_once, span in found
        for warps in (1, 4, 8)
        if at_once <= next_power_of_2(rows) and 32 * warps <= at_once * span <= 8192
    ]


def gru(layer: nn.GRU) -> Callable[..., Outputs]:
    """torch's GRU, cuDNN's on a GPU: x (B, T, H), a state (1, B, H) and the layer's weights.

    The layer's own weights lie in one block of memory, as cuDNN wants them.
    """

    def call(x: Tensor, state: Tensor, *weights: Tensor) -> Outputs:
        named = dict(layer.named_parameters())
        if weights[0] is next(iter(named.values())):
            out, final = layer(x, state)
        else:
            given = dict(zip(named, weights, strict=True))
            out, final = torch.func.functional_call(layer, given, (x, state))
        return out, final

    return call


class BatchedMuon:
    """A step of Muon by batched products: all matrices padded to one size and stacked.

    Weights and momenta stay padded from step to step; zeros around a matrix change nothing.
    """

    def __init__(self, gradients: Sequence[Tensor], lr: Tensor, *, copies: bool) -> None:
        self.sides: Final = [tuple(gradient.shape) for gradient in gradients]
        short = max(map(min, self.sides))
        long = max(map(max, self.sides))
        self.weights = torch.zeros(len(gradients), short, long, device=lr.device)
        self.momenta = torch.zeros_like(self.weights)
        factors = [math.sqrt(max(1, rows / cols)) for rows, cols in self.sides]
        self.factors = torch.tensor(factors, device=lr.device)[:, None, None]
        self.lr, self.copies = lr, copies

    def step(self, *gradients: Tensor) -> Outputs:
        """One step from the gradients: new weights, momenta and, if asked for, bf16 copies."""
        stacked = torch.zeros_like(self.weights)
        wide = [gradient.float() for gradient in gradients]
        for slot, gradient in zip(stacked, clipped_ref(wide, 0.5), strict=True):
            rows, cols = gradient.shape
            lying = gradient.T if rows > cols else gradient
            slot[: min(rows, cols), : max(rows, cols)] = lying
        self.momenta.mul_(0.9).add_(stacked)
        x = torch.add(stacked, self.momenta, alpha=0.9).bfloat16()
        norm = x.float().square().sum((1, 2), keepdim=True).sqrt().clamp(min=1e-7)
        x = (x / norm).bfloat16()
        for a, b, c in TRIPLES:
            g = torch.bmm(x, x.mT)
            x = torch.baddbmm(x, torch.baddbmm(g, g, g, beta=b, alpha=c), x, beta=a)
        self.weights.sub_(self.lr * self.factors * x)
        weights = self._unpadded(self.weights)
        copies = [weight.bfloat16() for weight in weights] if self.copies else []
        return (*weights, *self._unpadded(self.momenta), *copies)

    def _unpadded(self, stacked: Tensor) -> list[Tensor]:
        found = []
        for slot, (rows, cols) in zip(stacked, self.sides, strict=True):
            part = slot[: min(rows, cols), : max(rows, cols)]
            found.append(part.T if rows > cols else part)
        return found
