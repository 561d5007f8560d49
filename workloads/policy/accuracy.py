"""How accurate a training step is, compared with plain PyTorch."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from nsysflow.workloads.common.accuracy import Comparison, distance
from nsysflow.workloads.policy.fused_step import FusedStep
from nsysflow.workloads.policy.plain_step import PlainStep

PolicyStep = PlainStep | FusedStep


def compare(exact: PlainStep, plain: PlainStep, ours: PolicyStep) -> list[Comparison]:
    """Compare one training step of three programs, from the same weights on the same minibatch.

    Args:
        exact: plain PyTorch in float64.
        plain: plain PyTorch in the variant's precision.
        ours: the variant.
    """
    steps: tuple[PolicyStep, ...] = (exact, plain, ours)
    for step in steps:
        step.encode()
        step.recur()
        step.decode()
        step.loss()
        step.backward()
    rows = list(_differentiated(*steps))
    # orthogonalising amplifies noise near zero, so all three get the same gradients
    same = [gradient.clone() for gradient in plain.gradients]
    moved = [_moved(step, same) for step in steps]
    return [*rows, *_rows([f"step of {name}" for name in _names(exact)], *moved)]


def _differentiated(*steps: PolicyStep) -> Iterator[Comparison]:
    yield from _rows(["predictions"], *([step.predictions.detach()] for step in steps))
    yield from _rows(["loss"], *([step.loss_value] for step in steps))
    names = [f"gradient of {name}" for name in _names(steps[0])]
    yield from _rows(names, *(step.gradients for step in steps))


def _moved(step: PolicyStep, gradients: Sequence[Tensor]) -> list[Tensor]:
    """The changes that the optimizer makes to the weights, given these gradients."""
    before = [weight.clone() for weight in step.masters]
    step.take(gradients)
    step.grad_clip()
    step.optimize()
    return [new - old for new, old in zip(step.masters, before, strict=True)]


def _names(step: PolicyStep) -> list[str]:
    layers = [f"layer {number}" for number in range(len(step.masters) - 2)]
    return ["encoder", *layers, "decoder"]


def _rows(
    names: Sequence[str], exact: Sequence[Tensor], plain: Sequence[Tensor], ours: Sequence[Tensor]
) -> Iterator[Comparison]:
    for name, right, theirs, our in zip(names, exact, plain, ours, strict=True):
        yield Comparison(what=name, torch_error=distance(theirs, right), error=distance(our, right))
