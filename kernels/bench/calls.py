"""The function to call for a problem, a variant and a direction."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal, cast

import torch
from torch import Tensor
from torch._functorch import config as functorch_config

from nsysflow.catalog.catalog import Kernel, variants
from nsysflow.kernels.bench.problem import Direction, Outputs, Problem

Variant = Literal["ref", "compile", "compile-max", "triton", "cuda"]
BACKENDS: Final = ("triton", "cuda")
"""The variants that are our own kernels."""

MODES: Final = {"compile": None, "compile-max": "max-autotune-no-cudagraphs"}
"""Without torch's own CUDA graphs: the benchmark captures all variants in the same way."""


def variants_of(kernel: Kernel, *, on_gpu: bool) -> tuple[Variant, ...]:
    """The variants that can run: without a GPU the reference, and Triton in its interpreter."""
    runnable = variants() if on_gpu else ("ref", "triton")
    return cast(tuple[Variant, ...], tuple(each for each in runnable if each in kernel.variants))


def forget_compiled(variant: Variant) -> None:
    """Drop what torch.compile has compiled so far, before the next case.

    Compilations for the shapes of earlier cases would count towards the limit beyond which torch
    falls back to eager mode.
    """
    if variant in MODES:
        torch.compiler.reset()


def function_of(problem: Problem, variant: Variant) -> Callable[..., Outputs]:
    """The function that computes the outputs from the inputs."""
    if variant == "ref":
        return problem.reference
    if variant == "triton" or variant == "cuda":
        return problem.kernels[variant]
    # backward may write to donated buffers, but here it is called more than once
    functorch_config.donated_buffer = False
    compiled: Callable[..., Outputs] = torch.compile(
        problem.reference, fullgraph=True, dynamic=False, mode=MODES[variant]
    )
    return compiled


def call_of(
    problem: Problem, function: Callable[..., Outputs], direction: Direction
) -> Callable[[], Outputs]:
    """The call to measure: forward without gradients, backward after one forward, or both."""
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
    """The exact outputs: the reference in float64."""
    wide = replace(
        problem,
        inputs=tuple(_widened(each.detach()) for each in problem.inputs),
        slopes=tuple(_widened(each) for each in problem.slopes),
    )
    return tuple(each.detach() for each in call_of(wide, wide.reference, direction)())


def _widened(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor
