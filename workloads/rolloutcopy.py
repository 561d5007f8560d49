"""From a rollout to a minibatch: advantages, priorities and draws, and the copy of what was drawn.

Every variant draws the same rows. On a GPU the variant `graph` replays one CUDA graph of the step,
in a range `replay`.
"""

import torch

from nsysflow.workloads.config import Config, Work
from nsysflow.workloads.copying import Copy, FusedCopy, PlainCopy, compared
from nsysflow.workloads.drawing import uniforms
from nsysflow.workloads.phased import phased, variant_here
from nsysflow.workloads.phases import Own, Phase
from nsysflow.workloads.policy import Sizes
from nsysflow.workloads.rollouts import recorded
from nsysflow.workloads.table import Table, table_of

Options = Sizes


def rolloutcopy(config: Config[Sizes]) -> Work:
    """A minibatch after the other from one rollout."""
    sizes = config.options
    of = recorded(sizes, config.on, config.dtype)
    shape = (sizes.layers, sizes.minibatch, 1, sizes.hidden)
    state = torch.empty(shape, **config.placed)

    def plain() -> PlainCopy:
        steps = config.window.wait + config.window.warmup + config.window.active
        offsets = range(1, steps + 1)  # the first launch of `prio` adds one to its offset
        numbers = [uniforms(config.seed, sizes.minibatch, offset) for offset in offsets]
        return PlainCopy(of, state, [each.to(config.on) for each in numbers])

    def fused() -> FusedCopy:
        return FusedCopy(of, state, config.seed)

    alone = variant_here(config) == "torch"
    copy: Copy = plain() if alone else fused()

    def table() -> Table:
        if alone:
            return table_of([], {"torch": phases_of(copy)}, graph=None)
        ways = {"torch": phases_of(plain()), "fused": phases_of(copy)}
        return table_of(compared(plain(), fused(), of), ways, graph="fused")

    return phased(
        config,
        phases_of(copy),
        restart=copy.restart,
        result=lambda: copy.minibatch.returns,
        table=table,
    )


def phases_of(copy: Copy) -> tuple[Phase, ...]:
    """The phases of a step."""
    return (
        Phase(name=Own.COMPUTE_ADVANTAGE, work=copy.compute_advantage),
        Phase(name=Own.COMPUTE_PRIO, work=copy.compute_prio),
        Phase(name=Own.SELECT_AND_COPY, work=copy.select_and_copy),
    )
