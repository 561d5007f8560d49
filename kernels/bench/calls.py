"""From a problem to what is called: which variant, which way."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal

import torch
from torch import Tensor
from torch._functorch import config as functorch_config

from nsysflow.kernels.bench.problem import Direction, Kernel, Outputs, Problem

Variant = Literal["ref", "compile", "compile-max", "triton", "cuda"]
VARIANTS: Final[tuple[Variant, ...]] = ("ref", "compile", "compile-max", "triton", "cuda")

MODES: Final = {"compile": None, "compile-max": "max-autotune-no-cudagraphs"}
"""Without CUDA graphs of its own: all variants are captured alike."""


def variants_of(kernel: Kernel, *, on_gpu: bool) -> tuple[Variant, ...]:
    """Those there are; without a GPU the reference, and Triton in its interpreter."""
    if not on_gpu:
        return ("ref", "triton")
    compiled = MODES if kernel.compiles else ()
    return tuple(
        name for name in VARIANTS if name == "ref" or name in (*compiled, *kernel.backends)
    )


def forget_compiled(variant: Variant) -> None:
    """Before another case of it: a kernel compiled for the shapes of one before would count as one
    more, up to a limit beyond which torch falls back to eager."""
    if variant in MODES:
        torch.compiler.reset()


def function_of(problem: Problem, variant: Variant) -> Callable[..., Outputs]:
    """What computes the outputs from the inputs."""
    if variant == "ref":
        return problem.reference
    if variant == "triton" or variant == "cuda":
        return problem.kernels[variant]
    # donated buffers may be written to by backward, which is called more than once here
    functorch_config.donated_buffer = False
    compiled: Callable[..., Outputs] = torch.compile(
        problem.reference, fullgraph=True, dynamic=False, mode=MODES[variant]
    )
    return compiled


def call_of(
    problem: Problem, function: Callable[..., Outputs], direction: Direction
) -> Callable[[], Outputs]:
    """What is measured: forward without gradients, backward of a forward that has run, or both."""
    if direction == "fwd":

        def forward() -> Outputs:
            with torch.no_grad():
                return function(*problem.inputs)

        return forward

    leaves = [problem.inputs[place].requires_grad_() for place in problem.wanted]
    if direction == "bwd":
        outputs = function(*problem.inputs)
        return lambda: torch.autograd.grad(outputs, leaves, problem.slopes, retain_graph=True)

    def both() -> Outputs:
        outputs = function(*problem.inputs)
        return (*outputs, *torch.autograd.grad(outputs, leaves, problem.slopes))

    return both


def exact(problem: Problem, direction: Direction) -> Outputs:
    """What is right: the reference in float64."""
    wide = replace(
        problem,
        inputs=tuple(_widened(each.detach()) for each in problem.inputs),
        slopes=tuple(_widened(each) for each in problem.slopes),
    )
    return tuple(each.detach() for each in call_of(wide, wide.reference, direction)())


def _widened(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor
