"""The variants of a training step of the policy, shared by `trainforward` and `trainstep`."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nsysflow.base.errors import WorkloadError
from nsysflow.kernels.muon import SHORT_MAX
from nsysflow.kernels.narrow_linear import OUT_MAX
from nsysflow.runtime.regions import Region
from nsysflow.workloads.common.config import Config, Flops, Work
from nsysflow.workloads.common.measurement import Table, table_of
from nsysflow.workloads.common.phase_work import runnable_variant, work_of_phases
from nsysflow.workloads.common.phases import AnyPhase, Phase, Phases, WorkloadRegion, parts_of
from nsysflow.workloads.policy.accuracy import PolicyStep, compare
from nsysflow.workloads.policy.flops import policy_flops
from nsysflow.workloads.policy.fused_step import FusedStep
from nsysflow.workloads.policy.model import Batch, Sizes, batch_of, initial_weights
from nsysflow.workloads.policy.plain_step import PLAIN, Operations, PlainStep, compiled_operations
from nsysflow.workloads.policy.rollout import minibatch_of, random_rollout


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
        Phase(name=WorkloadRegion.ENCODER, work=step.encode),
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
    names = {phase.name for phase in parts_of(phases)}
    return Flops(
        unit="bf16" if config.precision == "bf16" else "float32",
        phases={
            name: flops for name, flops in policy_flops(config.options).items() if name in names
        },
    )
