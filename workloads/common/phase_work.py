"""A workload whose step is a list of phases, launched one by one or as one CUDA graph."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from nsysflow.workloads.common.config import Config, Work
from nsysflow.workloads.common.measurement import Table
from nsysflow.workloads.common.phases import AnyPhase, Phase, WorkloadRegion, captured


def runnable_variant(config: Config[Any]) -> str:
    """The variant that can run here: without a GPU it is always `torch`."""
    return config.variant if config.cuda else "torch"


def work_of_phases(
    config: Config[Any],
    phases: Sequence[AnyPhase],
    *,
    restart: Callable[[], None],
    result: Callable[[], Tensor],
    table: Callable[[], Table],
) -> Work:
    """A workload whose step runs these phases.

    Args:
        config: the variant `graph` captures all phases once and replays them in one range.
        phases: the phases of `runnable_variant`.
        restart: undoes the effect of running the phases once.
        result: as in `Work`.
        table: as in `Work`; it needs a GPU.
    """

    def launch() -> None:
        for phase in phases:
            phase()

    step: Callable[[], None] = launch
    if runnable_variant(config) == "graph":
        step = Phase(name=WorkloadRegion.REPLAY, work=captured(launch))
        restart()
    return Work(
        step=lambda _batch: step(),
        result=result,
        note="" if runnable_variant(config) == config.variant else "as torch: no GPU here",
        table=table if config.cuda else None,
    )
