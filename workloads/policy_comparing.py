"""Is a training step as right as plain PyTorch's?"""

from collections.abc import Iterator, Sequence

from torch import Tensor

from nsysflow.workloads.comparing import Compared, distance
from nsysflow.workloads.fused_policy import FusedStep
from nsysflow.workloads.plain_policy import PlainStep

PolicyStep = PlainStep | FusedStep


def compared(exact: PlainStep, plain: PlainStep, ours: PolicyStep) -> list[Compared]:
    """One training step of three, from the same weights on the same minibatch.

    Args:
        exact: in float64.
        plain: in the variant's precision.
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
    # orthogonalising raises the noise in what is near zero: so all three get the same gradients
    same = [gradient.clone() for gradient in plain.gradients]
    moved = [_moved(step, same) for step in steps]
    return [*rows, *_rows([f"step of {name}" for name in _names(exact)], *moved)]


def _differentiated(*steps: PolicyStep) -> Iterator[Compared]:
    yield from _rows(["predictions"], *([step.predictions.detach()] for step in steps))
    yield from _rows(["loss"], *([step.loss_value] for step in steps))
    names = [f"gradient of {name}" for name in _names(steps[0])]
    yield from _rows(names, *(step.gradients for step in steps))


def _moved(step: PolicyStep, gradients: Sequence[Tensor]) -> list[Tensor]:
    """What the optimizer adds to the weights, given these gradients."""
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
) -> Iterator[Compared]:
    for name, right, theirs, our in zip(names, exact, plain, ours, strict=True):
        yield Compared(what=name, torch_error=distance(theirs, right), error=distance(our, right))
