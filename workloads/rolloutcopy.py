"""From a rollout to a minibatch: advantages, priorities and draws, and the copy of the drawn rows.

Every variant draws the same rows. On a GPU the variant `graph` replays one CUDA graph of the step
in a range called `replay`.
"""

import torch

from nsysflow.workloads.common.measurement import Phase, Table, WorkloadRegion, table_of
from nsysflow.workloads.common.training import Config, Work, runnable_variant, work_of_phases
from nsysflow.workloads.policy.minibatch import (
    Copy,
    FusedCopy,
    PlainCopy,
    compare,
    random_rollout,
    uniforms,
)
from nsysflow.workloads.policy.model import Sizes

Options = Sizes


def rolloutcopy(config: Config[Sizes]) -> Work:
    """Make one minibatch after another from the same rollout."""
    sizes = config.options
    recorded = random_rollout(sizes, config.on, config.dtype)
    shape = (sizes.layers, sizes.minibatch, 1, sizes.hidden)
    state = torch.empty(shape, **config.placed)

    def plain() -> PlainCopy:
        steps = config.window.wait + config.window.warmup + config.window.active
        offsets = range(1, steps + 1)  # the first launch of `prio` adds one to its offset
        numbers = [uniforms(config.seed, sizes.minibatch, offset) for offset in offsets]
        return PlainCopy(recorded, state, [number.to(config.on) for number in numbers])

    def fused() -> FusedCopy:
        return FusedCopy(recorded, state, config.seed)

    alone = runnable_variant(config) == "torch"
    copy: Copy = plain() if alone else fused()

    def table() -> Table:
        if alone:
            return table_of([], {"torch": phases_of(copy)}, graph=None)
        ways = {"torch": phases_of(plain()), "fused": phases_of(copy)}
        return table_of(compare(plain(), fused(), recorded), ways, graph="fused")

    return work_of_phases(
        config,
        phases_of(copy),
        restart=copy.restart,
        result=lambda: copy.minibatch.returns,
        table=table,
    )


def phases_of(copy: Copy) -> tuple[Phase, ...]:
    """The phases of a step, in order."""
    return (
        Phase(name=WorkloadRegion.COMPUTE_ADVANTAGE, work=copy.compute_advantage),
        Phase(name=WorkloadRegion.COMPUTE_PRIO, work=copy.compute_prio),
        Phase(name=WorkloadRegion.SELECT_AND_COPY, work=copy.select_and_copy),
    )
