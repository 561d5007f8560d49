"""The variants of a training step of the policy, and what `trainforward` and `trainstep` share."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nsysflow.errors import WorkloadError
from nsysflow.kernels.muon import SHORT_MAX
from nsysflow.kernels.narrow_linear import OUT_MAX
from nsysflow.regions import Region
from nsysflow.workloads.config import Config, Flops, Work
from nsysflow.workloads.fused_policy import FusedStep
from nsysflow.workloads.phased import phased, variant_here
from nsysflow.workloads.phases import AnyPhase, Own, Phase, Phases, parts_of
from nsysflow.workloads.plain_policy import PLAIN, Operations, PlainStep, compiled
from nsysflow.workloads.policy import Batch, Sizes, batch_of, initial_weights
from nsysflow.workloads.policy_comparing import PolicyStep, compared
from nsysflow.workloads.policy_flops import policy_flops
from nsysflow.workloads.rollouts import minibatch_of, recorded
from nsysflow.workloads.table import Table, table_of


@dataclass(frozen=True, kw_only=True)
class Start:
    """From where every variant sets out.

    Attributes:
        weights: float32.
        batch: in the precision asked for.
    """

    weights: list[Tensor]
    batch: Batch

    def plain(self, operations: Operations = PLAIN) -> PlainStep:
        """In PyTorch, with float32 masters."""
        return PlainStep(self.weights, self.batch, self.batch.obs.dtype, operations)

    def exact(self) -> PlainStep:
        """The definition in float64, from weights rounded as the working copies are."""
        rounded = [weight.to(self.batch.obs.dtype).double() for weight in self.weights]
        return PlainStep(rounded, self.batch.to(torch.float64), torch.float64)


def start_of(config: Config[Sizes]) -> Start:
    """Weights and minibatch, of torch's random numbers; products of float32 are float32 from here.

    With TF32 the loss of 20 steps was 1.2e-4 away from that of float64, without 2.1e-5 (plain
    PyTorch on an H200, 2026-11-20).
    """
    torch.set_float32_matmul_precision("highest")
    sizes = config.options
    weights = initial_weights(sizes, config.on)
    of = recorded(sizes, config.on, config.dtype)
    return Start(weights=weights, batch=batch_of(minibatch_of(sizes, of)))


def variant_of(variant: str, start: Start) -> PolicyStep:
    """A step from that start.

    Raises:
        WorkloadError: the sizes are too large for the fused kernels.
    """
    if variant in ("torch", "compile"):
        return start.plain(compiled() if variant == "compile" else PLAIN)
    outputs, hidden = start.weights[-1].shape
    if hidden > SHORT_MAX or outputs > OUT_MAX:
        msg = (
            f"the fused kernels take up to {SHORT_MAX} hidden and {OUT_MAX - 1} actions, and these"
            f" are {hidden} and {outputs - 1}. For any size:\n  --variant torch"
        )
        raise WorkloadError(msg)
    return FusedStep(start.weights, start.batch, start.batch.obs.dtype)


def forward_phases(step: PolicyStep) -> tuple[AnyPhase, ...]:
    """Forward in its parts, loss, backward."""
    parts = (
        Phase(name=Own.ENCODER, work=step.encode),
        Phase(name=Own.RNN, work=step.recur),
        Phase(name=Own.DECODER, work=step.decode),
    )
    return (
        Phases(name=Region.FORWARD, parts=parts),
        Phase(name=Region.LOSS, work=step.loss),
        Phase(name=Region.BACKWARD, work=step.backward),
    )


def training_phases(step: PolicyStep) -> tuple[AnyPhase, ...]:
    """The same, and what the weights are changed by."""
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
    """A workload of these phases.

    Args:
        config: what to run.
        phases_of: the phases of a step.
        result_of: what came out of it.
    """
    start = start_of(config)
    step = variant_of(variant_here(config), start)

    def table() -> Table:
        if config.variant == "torch":
            return table_of([], {"torch": phases_of(start.plain())}, graph=None)
        # a graph is one of the fused step
        name = "fused" if config.variant == "graph" else config.variant
        rows = compared(start.exact(), start.plain(), variant_of(name, start))
        ways = {"torch": start.plain(), name: variant_of(name, start)}
        phases = {way: phases_of(step) for way, step in ways.items()}
        return table_of(rows, phases, graph="fused" if name == "fused" else None)

    phases = phases_of(step)
    work = phased(
        config,
        phases,
        restart=lambda: step.restart(start.weights),
        result=lambda: result_of(step),
        table=table,
    )
    return replace(work, flops=_flops_of(config, phases))


def _flops_of(config: Config[Sizes], phases: tuple[AnyPhase, ...]) -> Flops:
    """What these phases compute; float32 products are float32 here."""
    names = {phase.name for phase in parts_of(phases)}
    return Flops(
        unit="bf16" if config.precision == "bf16" else "float32",
        phases={
            name: flops for name, flops in policy_flops(config.options).items() if name in names
        },
    )
