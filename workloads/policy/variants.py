"""The variants of a training step of the policy, shared by `trainforward` and `trainstep`: how
accurate they are, and their floating-point operations by formula.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nsysflow.base.errors import WorkloadError
from nsysflow.kernels.muon import SHORT_MAX, muon_flops
from nsysflow.kernels.narrow_linear import OUT_MAX
from nsysflow.runtime.regions import Region
from nsysflow.workloads.common.accuracy import Comparison, distance
from nsysflow.workloads.common.measurement import (
    AnyPhase,
    Phase,
    Phases,
    Table,
    WorkloadRegion,
    parts_of,
    table_of,
)
from nsysflow.workloads.common.training import (
    Config,
    Flops,
    Work,
    product,
    runnable_variant,
    work_of_phases,
)
from nsysflow.workloads.policy.minibatch import minibatch_of, random_rollout
from nsysflow.workloads.policy.model import Batch, Sizes, batch_of, initial_weights
from nsysflow.workloads.policy.steps import (
    PLAIN,
    FusedStep,
    Operations,
    PlainStep,
    compiled_operations,
)

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


def policy_flops(sizes: Sizes) -> dict[str, int]:
    """Operations of each phase that has matrix products, as PyTorch does them.

    The fused backward needs a third of them, as `linear_pair_backward` says.
    """
    rows, hidden = sizes.rows, sizes.hidden
    encoder = product(rows, hidden, sizes.obs)
    rnn = sizes.layers * product(rows, 3 * hidden, hidden)
    decoder = product(rows, sizes.actions + 1, hidden)
    return {
        WorkloadRegion.ENCODER: encoder,
        WorkloadRegion.RNN: rnn,
        WorkloadRegion.DECODER: decoder,
        # one gradient per weight, and one per input except the observations
        Region.BACKWARD: 2 * (encoder + rnn + decoder) - encoder,
        Region.OPTIMIZER: sum(muon_flops(*sides) for sides in sizes.weights),
    }


@dataclass(frozen=True, kw_only=True)
class Start:
    """What every variant starts from.

    Attributes:
        weights: the initial weights, float32.
        batch: the minibatch, in the configured precision.
    """

    weights: list[Tensor]
    batch: Batch

    def plain(self, operations: Operations = PLAIN) -> PlainStep:
        """The step in PyTorch, with float32 masters."""
        return PlainStep(self.weights, self.batch, self.batch.obs.dtype, operations)

    def exact(self) -> PlainStep:
        """The definition in float64, from weights rounded like the working copies."""
        rounded = [weight.to(self.batch.obs.dtype).double() for weight in self.weights]
        return PlainStep(rounded, self.batch.to(torch.float64), torch.float64)


def start_of(config: Config[Sizes]) -> Start:
    """Random weights and a random minibatch. Switches TF32 off for float32 products.

    With TF32 the loss over 20 steps was 1.2e-4 away from float64's, without it 2.1e-5 (plain
    PyTorch on an H200, 2026-11-20).
    """
    torch.set_float32_matmul_precision("highest")
    sizes = config.options
    weights = initial_weights(sizes, config.on)
    rollout = random_rollout(sizes, config.on, config.dtype)
    return Start(weights=weights, batch=batch_of(minibatch_of(sizes, rollout)))


def variant_of(variant: str, start: Start) -> PolicyStep:
    """The step of a variant.

    Raises:
        WorkloadError: the sizes are too large for the fused kernels.
    """
    if variant in ("torch", "compile"):
        return start.plain(compiled_operations() if variant == "compile" else PLAIN)
    outputs, hidden = start.weights[-1].shape
    if hidden > SHORT_MAX or outputs > OUT_MAX:
        seen = (
            f"the fused kernels take at most {SHORT_MAX} hidden and {OUT_MAX - 1} actions, but"
            f" --hidden is {hidden} and --actions is {outputs - 1}"
        )
        raise WorkloadError(seen, "Use PyTorch, which takes any size", "--variant torch")
    return FusedStep(start.weights, start.batch, start.batch.obs.dtype)


def forward_phases(step: PolicyStep) -> tuple[AnyPhase, ...]:
    """The phases of `trainforward`: forward with its parts, loss, backward."""
    parts = (
        Phase(
            name=WorkloadRegion.ENCODER,
            work=step.encode,
            empty=WorkloadRegion.ENCODER in step.empty,
        ),
        Phase(name=WorkloadRegion.RNN, work=step.recur),
        Phase(name=WorkloadRegion.DECODER, work=step.decode),
    )
    return (
        Phases(name=Region.FORWARD, parts=parts),
        Phase(name=Region.LOSS, work=step.loss),
        Phase(name=Region.BACKWARD, work=step.backward),
    )


def training_phases(step: PolicyStep) -> tuple[AnyPhase, ...]:
    """The phases of `trainstep`: those of `trainforward` and those that change the weights."""
    rest = {
        Region.GRAD_CLIP: step.grad_clip,
        Region.OPTIMIZER: step.optimize,
        Region.WEIGHT_SYNC: step.sync_weights,
    }
    return (
        *forward_phases(step),
        *(Phase(name=name, work=work, empty=name in step.empty) for name, work in rest.items()),
    )


def policy_work(
    config: Config[Sizes],
    phases_of: Callable[[PolicyStep], tuple[AnyPhase, ...]],
    result_of: Callable[[PolicyStep], Tensor],
) -> Work:
    """A workload that runs these phases of the policy's step.

    Args:
        config: the run.
        phases_of: returns the phases of a step.
        result_of: returns the result of a step.
    """
    start = start_of(config)
    step = variant_of(runnable_variant(config), start)

    def table() -> Table:
        if config.variant == "torch":
            return table_of([], {"torch": phases_of(start.plain())}, graph=None)
        # the graph captures the fused step
        name = "fused" if config.variant == "graph" else config.variant
        rows = compare(start.exact(), start.plain(), variant_of(name, start))
        ways = {"torch": start.plain(), name: variant_of(name, start)}
        phases = {way: phases_of(step) for way, step in ways.items()}
        return table_of(rows, phases, graph="fused" if name == "fused" else None)

    phases = phases_of(step)
    work = work_of_phases(
        config,
        phases,
        restart=lambda: step.restart(start.weights),
        result=lambda: result_of(step),
        table=table,
    )
    return replace(work, flops=_flops_of(config, phases))


def _flops_of(config: Config[Sizes], phases: tuple[AnyPhase, ...]) -> Flops:
    """The operations of these phases. Float32 products run without TF32 here."""
    parts = {phase.name: phase for phase in parts_of(phases)}
    flops = policy_flops(config.options)
    if parts[WorkloadRegion.ENCODER].empty:
        flops[WorkloadRegion.RNN] += flops.pop(WorkloadRegion.ENCODER)
    return Flops(
        unit="bf16" if config.precision == "bf16" else "float32",
        phases={name: number for name, number in flops.items() if name in parts},
    )
