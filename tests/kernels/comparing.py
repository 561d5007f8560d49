"""Outputs and gradients of a kernel, and those of its definition in float64."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Outputs = Tensor | Sequence[Tensor]


def listed(outs: Outputs) -> list[Tensor]:
    return [outs] if isinstance(outs, Tensor) else list(outs)


def same(ones: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether all tensors are equal, bit for bit."""
    return all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))


def with_gradients(
    function: Callable[..., Any], inputs: Sequence[Tensor], douts: Outputs
) -> list[Tensor]:
    """The outputs of a function, and the gradients of its inputs for those of the outputs."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    outs = listed(function(*leaves))
    return [*(out.detach() for out in outs), *torch.autograd.grad(outs, leaves, listed(douts))]


def exact(reference: Callable[..., Any], inputs: Sequence[Tensor], douts: Outputs) -> list[Tensor]:
    """The same of a definition in float64."""
    wide = [tensor.double() for tensor in inputs]
    return with_gradients(reference, wide, [dout.double() for dout in listed(douts)])
